"""Kernels do the arithmetic on a client's rows. They differ in speed, not in their results.

`numpy`
    The plain version in `fedkmeans.kernels.reference`, written to be compared with the paper.
`numba`
    Compiled, with a cache between rounds; the same labels, and the same centroids up to rounding.
`auto`
    `numba`, but `numpy` for data so small that loading `numba` takes longer than the run.
"""

from __future__ import annotations

from importlib import import_module

from fedkmeans._utils.checks import check_choice
from fedkmeans.kernels.base import Clustered, Outcome, Rows
from fedkmeans.kernels.preparation import preparing
from fedkmeans.kernels.reference.kernel import Kernel
from fedkmeans.kernels.sparse import Table

__all__ = [
    "AUTO",
    "KERNELS",
    "Clustered",
    "Kernel",
    "Outcome",
    "Rows",
    "choose_kernel",
    "find_kernel",
    "kernel_for",
]

AUTO = "auto"
# The module of each kernel, imported when it is first needed, as compiled code takes time to load.
KERNELS = {"numpy": "fedkmeans.kernels.reference.kernel", "numba": "fedkmeans.kernels.numba.kernel"}

# Approximate seconds per round of the plain version, per client and per number in the rows.
_SECONDS_PER_CLIENT, _SECONDS_PER_NUMBER = 3e-4, 2e-8
# If a round takes longer, a run gains more from compiled code than loading it costs, which is about a second.
_SHORT_ROUND = 5e-3


def find_kernel(name: str) -> Kernel:
    """Return the kernel with this name."""
    check_choice("kernel", name, KERNELS)
    with preparing():
        kernel: Kernel = import_module(KERNELS[name]).KERNEL
    return kernel


def kernel_for(X: Table) -> Kernel:
    """Return the kernel that `auto` chooses for the rows of one client."""
    return find_kernel(choose_kernel(AUTO, 1, X.size))


def choose_kernel(name: str, n_clients: int, n_numbers: int) -> str:
    """Return the name of a kernel; "auto" depends on the number of clients and numbers in all rows."""
    if check_choice("kernel", name, (AUTO, *KERNELS)) != AUTO:
        return name
    seconds = n_clients * _SECONDS_PER_CLIENT + n_numbers * _SECONDS_PER_NUMBER
    return "numba" if seconds > _SHORT_ROUND else "numpy"
