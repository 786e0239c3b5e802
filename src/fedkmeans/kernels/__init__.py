"""Kernels: who does the arithmetic on a client's rows. They differ in speed, not in what they find.

`numpy`
    The plain version of `fedkmeans.kernels.reference.lloyd`, to be read and held against the paper.
`numba`
    Compiled, with memory of the last round; the same labels, centroids to rounding.
`auto`
    `numba`, but `numpy` for data so small that it is done before `numba` is loaded.
"""

from __future__ import annotations

from importlib import import_module

from fedkmeans._utils.checks import check_choice
from fedkmeans.kernels.base import Clustered, Kernel, Outcome, Rows
from fedkmeans.kernels.preparation import preparing
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
# Where each kernel is; imported when it is first needed, as compiled code takes a moment to load.
KERNELS = {"numpy": "fedkmeans.kernels.reference.kernel", "numba": "fedkmeans.kernels.numba.kernel"}

# A round of the plain version takes about this long for each client and for each number.
_SECONDS_A_CLIENT, _SECONDS_A_NUMBER = 3e-4, 2e-8
# Above this a run gains more by the fast version than the second or so it takes to load.
_SHORT_ROUND = 5e-3


def find_kernel(name: str) -> Kernel:
    """Return the kernel of that name."""
    check_choice("kernel", name, KERNELS)
    with preparing():
        kernel: Kernel = import_module(KERNELS[name]).KERNEL
    return kernel


def kernel_for(X: Table) -> Kernel:
    """Return the kernel that suits rows which lie in one place."""
    return find_kernel(choose_kernel(AUTO, 1, X.size))


def choose_kernel(name: str, n_clients: int, n_numbers: int) -> str:
    """Turn "auto" into a kernel's name for so many clients with so many numbers in all."""
    if check_choice("kernel", name, (AUTO, *KERNELS)) != AUTO:
        return name
    seconds = n_clients * _SECONDS_A_CLIENT + n_numbers * _SECONDS_A_NUMBER
    return "numba" if seconds > _SHORT_ROUND else "numpy"
