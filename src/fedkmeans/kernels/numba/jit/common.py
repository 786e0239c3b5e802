"""Decorators, constants and small functions for all compiled code."""

from __future__ import annotations

from functools import partial

from numba import njit, types
from numba.extending import overload

from fedkmeans.kernels.numba.compiling import kept, watch_compiling

# Functions called from Python are compiled once for each type of data and kept on disk. Functions called
# only by these are compiled into them, without the wrappers for calls from Python. Long functions with a
# single caller are inlined before compilation, otherwise their code would be optimized twice.
entry = partial(kept, nogil=True, error_model="numpy")
inner = partial(njit, nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
part_of_caller = partial(inner, inline="always")
watch_compiling(__package__)

# Options of the compiler: sums may be added in any order, but NaN is still NaN.
ANY_ORDER = {"reassoc", "contract", "nsz", "arcp"}
# For numbers that are known to be finite.
FINITE = ANY_ORDER | {"nnan", "ninf"}

# Relative rounding errors of single and double precision.
SINGLE, DOUBLE = 2.0**-24, 2.0**-53
# Up to k * m terms per row, the plain formula is also the fastest.
FEW_TERMS = 64
# From this number of columns on, the matrix product is faster with the centroids on the right.
MANY_COLUMNS = 64

# The setting number of answers with one local step; other settings have larger numbers.
ONE_STEP = 1

# What the local centroid of a cluster is: as received, the mean of its rows, or the mean of rows it lost.
AS_RECEIVED, MEAN, FROZEN = 0, 1, 2


def chosen_by_type(is_first, first, second):
    """A function that is `first` or `second`, depending on the type of X; chosen at compile time."""

    def choose(X, *arguments):  # runs where code is not compiled (NUMBA_DISABLE_JIT)
        return (first if is_first(X) else second)(X, *arguments)

    @overload(choose)
    def _(X, *arguments):
        chosen = first if is_first(X) else second
        return lambda X, *arguments: chosen(X, *arguments)

    return choose


def is_sparse(X):
    """Whether X, or its type, is a `Csr`."""
    return isinstance(X, types.BaseTuple | tuple)


def is_single(X):
    """Whether X has single precision."""
    return str(X.dtype) == "float32"


@inner()
def copy(source, target):
    """Copy a vector; written out because compiled slices include code for errors that cannot occur."""
    for q in range(len(target)):
        target[q] = source[q]


@inner()
def fill(target, value):
    """Fill a vector."""
    for q in range(len(target)):
        target[q] = value
