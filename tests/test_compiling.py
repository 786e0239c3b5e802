"""The garbage collector keeps still while the kernel is compiled, and not a moment longer."""

import gc

import pytest
from numba import njit
from numba.core import event
from numba.core.errors import NumbaError
from numba.extending import overload

from fedkmeans.kernels.compiling import _CollectorKeepsStill

collecting = []


def fresh_function():
    def look():
        raise NotImplementedError

    @overload(look)
    def _look():
        collecting.append(gc.isenabled())  # while the caller is compiled
        return lambda: 1

    @njit
    def inside():
        return look()

    @njit
    def outside():
        return inside() + inside()

    return outside


@pytest.fixture
def compile_under():
    def run(module):
        collecting.clear()
        with event.install_listener("numba:compile", _CollectorKeepsStill(module)):
            assert fresh_function()() == 2
        return set(collecting)

    return run


@pytest.fixture
def without_collector():
    gc.disable()
    yield
    gc.enable()


def test_pauses_for_functions_of_the_module_and_what_they_call(compile_under):
    assert compile_under(__name__) == {False}
    assert gc.isenabled()


def test_leaves_other_modules_alone(compile_under):
    assert compile_under("somewhere.else") == {True}


def test_a_collector_that_was_off_stays_off(compile_under, without_collector):
    compile_under(__name__)
    assert not gc.isenabled()


def test_goes_on_after_an_error():
    @njit
    def wrong():
        return no_such_name  # noqa: F821

    with event.install_listener("numba:compile", _CollectorKeepsStill(__name__)), pytest.raises(NumbaError):
        wrong()
    assert gc.isenabled()
