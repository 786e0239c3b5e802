"""A service without a home, with a read-only installation."""

import numpy as np
import pandas as pd
import pytest

from tests.service_user import service_user

pytestmark = pytest.mark.slow

KEPT = "no cache folder that can be written"
COMPILING = "Compiling for this kind of data, once on this machine"


@pytest.fixture(scope="module")
def service():
    with service_user() as found:
        yield found


@pytest.fixture(scope="module")
def fit(service):
    """A fit with compiled code; returns its standard error and the centroids."""
    rng = np.random.default_rng(0)
    for site in ("north", "south"):
        pd.DataFrame(rng.normal(size=(60, 2)), columns=["x", "y"]).to_csv(
            service.home / f"{site}.csv", index=False
        )

    def run(name):
        arguments = ("north.csv", "south.csv", "-k", 3, "--seed", 0, "--kernel", "numba", "--out", name)
        done = service.run("-m", "fedkmeans", "fit", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stderr, (service.home / name / "centroids.safetensors").read_bytes()

    return run


def test_compiled_code_is_cached_among_temporary_files_with_one_warning(service, fit):
    first, centroids = fit("first")
    assert first.count(KEPT) == 1
    assert first.count(COMPILING) == 1
    assert str(service.cache) in first
    assert any(service.cache.rglob("*.nbi"))
    assert service.cache.stat().st_mode & 0o777 == 0o700
    second, again = fit("second")
    assert KEPT not in second
    assert COMPILING not in second
    assert again == centroids
    assert {path.name for path in service.home.iterdir()} == {"north.csv", "south.csv", "first", "second"}


def test_a_folder_that_others_may_write_is_not_trusted(service, fit):
    _, centroids = fit("trusted")
    aside = service.cache.rename(service.temporary / "aside")
    service.cache.mkdir()
    service.cache.chmod(0o777)
    said, again = fit("not-kept")
    service.cache.rmdir()  # nothing is in it
    aside.rename(service.cache)
    assert said.count("there is no folder for it that only this user can write") == 1
    assert "Set NUMBA_CACHE_DIR" in said
    assert "Compiling for this kind of data, in this process" in said
    assert again == centroids


def test_figures_cause_no_warning(service):
    draw = "from fedkmeans.study.plots import new_figure; new_figure((2, 2)).savefig('picture.png')"
    for kept in (False, True):
        done = service.run("-W", "ignore::UserWarning", "-c", draw)
        assert (done.returncode, done.stderr) == (0, ""), kept
    assert any((service.cache / "matplotlib").glob("fontlist*"))
