"""The garbage collector pauses while the kernel is compiled; which compiled code is kept, and how long."""

import ast
import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest
from numba import njit
from numba.core import event
from numba.core.errors import NumbaError
from numba.extending import overload

from fedkmeans.kernels.numba import jit
from fedkmeans.kernels.numba.compiling import _WhileCompiling, kept, source_digest

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
        with event.install_listener("numba:compile", _WhileCompiling(module)):
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


def test_pauses_for_functions_of_the_package(compile_under):
    assert compile_under(__name__.rpartition(".")[0]) == {False}


@pytest.mark.parametrize("other", ["somewhere.else", __name__[:-1], f"{__name__}.inside"])
def test_leaves_other_modules_alone(compile_under, other):
    assert compile_under(other) == {True}


def test_a_collector_that_was_off_stays_off(compile_under, without_collector):
    compile_under(__name__)
    assert not gc.isenabled()


def test_goes_on_after_an_error():
    @njit
    def wrong():
        return no_such_name  # noqa: F821

    with event.install_listener("numba:compile", _WhileCompiling(__name__)), pytest.raises(NumbaError):
        wrong()
    assert gc.isenabled()


SOURCE = """
from typing import NamedTuple
{imports}
class {name}(NamedTuple):
    x: float
@{decorator}
def twice(pair):
    return 2 * pair.x
def main():
    print(twice({name}(1.5)), sum(twice.stats.cache_hits.values()))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("imports", "decorator", "said"),
    [
        (
            "from fedkmeans.kernels.numba.compiling import kept",
            "kept()",
            ["3.0 0", "3.0 1", "3.0 0", "3.0 1"],
        ),
        ("from numba import njit", "njit(cache=True)", ["3.0 0", "3.0 1", "", ""]),  # what it is there for
    ],
    ids=["kept", "njit"],
)
def test_code_that_an_earlier_version_left_is_no_obstacle(tmp_path, imports, decorator, said):
    path = tmp_path / "module.py"
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    answers = []
    for name in ("Pair", "Pair", "Renamed", "Renamed"):
        text = SOURCE.format(imports=imports, decorator=decorator, name=name)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
        command = [sys.executable, "-c", "import module; module.main()"]
        run = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        answers.append(run.stdout.strip())
        assert bool(run.stdout) or "AttributeError" in run.stderr
    assert answers == said


HELPER = """
from numba import njit
@njit
def factor():
    return {factor}
"""
CALLER = """
{imports}
from helper import factor
@{decorator}
def times(x):
    return factor() * x
def main():
    print(times(1.5), sum(times.stats.cache_hits.values()))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("imports", "decorator", "printed"),
    [
        (
            "from fedkmeans.kernels.numba.compiling import kept",
            "kept()",
            ["3.0 0", "3.0 1", "4.5 0", "4.5 1", "3.0 0"],
        ),
        # Numba alone uses what it compiled for the previous helper.
        ("from numba import njit", "njit(cache=True)", ["3.0 0", "3.0 1", "3.0 1", "3.0 1", "3.0 1"]),
    ],
    ids=["kept", "njit"],
)
def test_a_changed_helper_in_another_file_is_compiled_again(tmp_path, imports, decorator, printed):
    # Without Python's own cache, which would miss changes within a second.
    cache = {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    (tmp_path / "module.py").write_text(CALLER.format(imports=imports, decorator=decorator))
    command, answers = [sys.executable, "-c", "import module; module.main()"], []
    for factor in (2, 2, 3, 3, 2):
        (tmp_path / "helper.py").write_text(HELPER.format(factor=factor))
        run = subprocess.run(
            command, cwd=tmp_path, env={**os.environ, **cache}, capture_output=True, text=True, check=True
        )
        answers.append(run.stdout.strip())
    assert answers == printed


def test_the_digest_of_a_folder_covers_names_and_contents_of_all_its_sources(tmp_path):
    def digest():
        source_digest.cache_clear()
        return source_digest(tmp_path)

    a, b = tmp_path / "a.py", tmp_path / "b.py"
    a.write_text("x = 1")
    b.write_text("y = 1")
    digests = [digest()]
    for change in (
        lambda: b.write_text("y = 2"),
        lambda: (a.write_text("x = 1y"), b.write_text(" = 2")),
        lambda: b.rename(tmp_path / "c.py"),
        lambda: (tmp_path / "d.py").touch(),
    ):
        change()
        digests.append(digest())
    assert len(set(digests)) == len(digests)
    os.utime(a, (0, 0))
    (tmp_path / "notes.txt").touch()
    assert digest() == digests[-1]
    source_digest.cache_clear()


def test_compiled_code_depends_on_no_source_outside_its_folder():
    """Its digest would not notice a change there."""
    for path in Path(jit.__path__[0]).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                root = node.module.split(".")[0]
                assert node.level == 0
                assert root != "fedkmeans" or node.module.startswith((f"{jit.__name__}.", KEEPS))
            assert not isinstance(node, ast.Import) or node.names[0].name == "numpy"


KEEPS = "fedkmeans.kernels.numba.compiling"

TRIVIAL = """
from fedkmeans.kernels.numba.compiling import kept, watch_compiling
from fedkmeans.kernels.preparation import Stopwatch
watch_compiling(__name__)
@kept()
def twice(x):
    return 2 * x
def main():
    stopwatch = Stopwatch()
    print(twice(1.5), stopwatch.preparation() > stopwatch.seconds(), sum(twice.stats.cache_hits.values()))
"""


@pytest.fixture
def call(tmp_path):
    """Call a function that is kept, in a new process; returns what it printed, and warnings."""
    (tmp_path / "module.py").write_text(TRIVIAL)
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def run(code="import module; module.main()"):
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
        )
        return done.stdout.split(), done.stderr

    return run


def test_compiling_and_reading_what_is_kept_are_no_part_of_a_run(call):
    assert call()[0] == ["3.0", "True", "0"]
    assert call()[0] == ["3.0", "True", "1"]


def cut_off(path):
    path.write_bytes(path.read_bytes()[:-20])


def emptied(path):
    path.write_bytes(b"")


def of_another_protocol(path):
    content = bytearray(path.read_bytes())
    content[1] ^= 0x40
    path.write_bytes(content)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "damage"),
    [
        ("*.nbi", of_another_protocol),
        ("*.nbc", cut_off),
        pytest.param("*.nbi", cut_off, marks=pytest.mark.slow),
        pytest.param("*.nbi", emptied, marks=pytest.mark.slow),
        pytest.param("*.nbc", emptied, marks=pytest.mark.slow),
        pytest.param("*.nbc", of_another_protocol, marks=pytest.mark.slow),
    ],
)
def test_damaged_files_are_no_obstacle(call, tmp_path, kind, damage):
    call()
    (path,) = (tmp_path / "cache").rglob(kind)
    damage(path)
    assert call()[0] == ["3.0", "True", "0"]
    assert call()[0] == ["3.0", "True", "1"]  # made anew


@pytest.mark.slow
def test_an_index_that_cannot_be_read_or_replaced_is_told_and_no_obstacle(call, tmp_path):
    call()
    (path,) = (tmp_path / "cache").rglob("*.nbi")
    path.unlink()
    path.mkdir()
    found, said = call()
    assert found == ["3.0", "True", "0"]
    assert said.count("Compiled code is not kept") == 1


@pytest.mark.slow
def test_a_full_disk_is_told_and_no_obstacle(call):
    found, said = call(
        "import errno, os; from numba.core.caching import IndexDataCacheFile\n"
        "def full(*_): raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))\n"
        "IndexDataCacheFile.save = full\n"
        "import module; module.main()"
    )
    assert found == ["3.0", "True", "0"]
    assert said.count("cannot be used (No space left on device)") == 1


def test_a_program_without_sources_keeps_nothing(recwarn):
    function = {}
    exec(compile("def twice(x): return 2 * x", "packed.zip/module.py", "exec"), function)
    assert kept()(function["twice"])(1.5) == 3.0
    assert "its source is not a file of its own" in str(recwarn.pop(UserWarning).message)
