"""Cache folders: which folder is used, and which is not trusted."""

import os
import stat
import warnings
from pathlib import Path

import pytest

from fedkmeans._utils import cache_folder
from fedkmeans._utils.cache_folder import prepare_matplotlib, writable_cache


@pytest.fixture(autouse=True)
def nothing_found_yet(monkeypatch, tmp_path):
    """No folder is cached, no variable is set, and temporary files go to the test's folder."""
    writable_cache.cache_clear()
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "MPLCONFIGDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(cache_folder.tempfile, "gettempdir", lambda: str(tmp_path))
    yield
    writable_cache.cache_clear()


@pytest.fixture
def file(tmp_path):
    """A file, below which not even root can create a folder."""
    (tmp_path / "file").touch()
    return tmp_path / "file"


def private(tmp_path):
    return tmp_path / f"fedkmeans-cache-{os.geteuid()}"


def test_the_variable_has_priority(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "given"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert writable_cache("numba") == tmp_path / "given/fedkmeans/numba"
    assert writable_cache("numba").is_dir()
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("given", ["", "relative", None])
def test_the_home_is_next(monkeypatch, tmp_path, file, given):
    monkeypatch.setenv("XDG_CACHE_HOME", str(file) if given is None else given)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert writable_cache("numba") == tmp_path / "home/.cache/fedkmeans/numba"


def test_without_a_home_there_is_a_private_folder(monkeypatch, tmp_path):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    with pytest.warns(UserWarning, match="Set XDG_CACHE_HOME") as told:
        assert writable_cache("numba") == private(tmp_path) / "numba"
    assert len(told) == 1
    for made in (private(tmp_path), private(tmp_path) / "numba"):
        assert stat.S_IMODE(made.stat().st_mode) == 0o700
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # there is only one warning, also when another process looks
        assert writable_cache("matplotlib") == private(tmp_path) / "matplotlib"
        writable_cache.cache_clear()
        assert writable_cache("numba") == private(tmp_path) / "numba"


def open_to_others(folder):
    folder.mkdir()
    folder.chmod(0o770)


def is_a_link(folder):
    (folder.parent / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(folder.parent / "elsewhere")


@pytest.mark.parametrize("make", [open_to_others, is_a_link, Path.touch])
def test_a_folder_that_others_could_have_filled_is_not_used(monkeypatch, tmp_path, file, make):
    monkeypatch.setenv("HOME", str(file))
    make(private(tmp_path))
    assert writable_cache("numba") is None


def test_a_folder_that_others_could_replace_is_not_used(monkeypatch, tmp_path, file):
    monkeypatch.setenv("HOME", str(file))
    tmp_path.chmod(0o777)  # and not sticky, unlike folders for temporary files
    assert writable_cache("numba") is None


def test_another_users_folder_is_not_used(monkeypatch, tmp_path, file):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "given"))
    monkeypatch.setenv("HOME", str(file))
    (tmp_path / "given/fedkmeans/numba").mkdir(parents=True)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert writable_cache("numba") is None


def test_a_cache_that_others_can_write_is_not_used(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "given"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "given/fedkmeans/numba").mkdir(parents=True)
    (tmp_path / "given/fedkmeans/numba").chmod(0o777)
    assert writable_cache("numba") == tmp_path / "home/.cache/fedkmeans/numba"


def test_there_is_no_folder_if_nothing_can_be_written(monkeypatch, file):
    monkeypatch.setenv("HOME", str(file))
    monkeypatch.setattr(cache_folder.tempfile, "gettempdir", lambda: str(file))
    assert writable_cache("numba") is None


def test_matplotlib_gets_a_folder_only_if_it_has_none(monkeypatch, tmp_path, file):
    monkeypatch.setattr(cache_folder.sys, "modules", {})
    monkeypatch.setenv("HOME", str(tmp_path))
    prepare_matplotlib()
    assert "MPLCONFIGDIR" not in os.environ
    monkeypatch.setenv("HOME", str(file / "below"))
    monkeypatch.setenv("MPLCONFIGDIR", "chosen")
    prepare_matplotlib()
    assert os.environ["MPLCONFIGDIR"] == "chosen"
    monkeypatch.delenv("MPLCONFIGDIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "given"))
    prepare_matplotlib()
    assert os.environ["MPLCONFIGDIR"] == str(tmp_path / "given/fedkmeans/matplotlib")
