import os

import pytest

from fedkmeans.data import atomic_folder, atomic_path
from fedkmeans.errors import DataError


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def stop_half_way(path):
    path.write_text("half")
    raise RuntimeError("half way")


def test_a_file_appears_only_when_complete(tmp_path):
    target = tmp_path / "out.txt"
    target.write_text("old")
    with atomic_path(target) as temporary:
        assert temporary.parent == tmp_path
        temporary.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert names(tmp_path) == ["out.txt"]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    target = tmp_path / "out.txt"
    target.write_text("old")
    with pytest.raises(RuntimeError, match="half way"), atomic_path(target) as temporary:
        stop_half_way(temporary)
    assert target.read_text() == "old"
    assert names(tmp_path) == ["out.txt"]


def test_a_new_file_has_the_permissions_of_any_new_file(tmp_path):
    (tmp_path / "plain").touch()
    with atomic_path(tmp_path / "out") as temporary:
        temporary.write_text("x")
    assert (tmp_path / "out").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with atomic_path(tmp_path / "link") as temporary:
        temporary.write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_places_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    for bad in (tmp_path / "absent" / "out", tmp_path / "file" / "out"):
        for opener in (atomic_path, atomic_folder):
            with pytest.raises(DataError, match=r"cannot write .*out'.*existing folder"), opener(bad):
                pytest.fail("the block must not be entered")
    with pytest.raises(DataError, match="it is a folder"), atomic_path(tmp_path):
        pytest.fail("the block must not be entered")
    with pytest.raises(DataError, match="a file has that name"), atomic_folder(tmp_path / "file"):
        pytest.fail("the block must not be entered")
    assert names(tmp_path) == ["file"]


def test_a_failing_move_is_a_data_error_and_cleans_up(tmp_path, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with (
        pytest.raises(DataError, match=r"cannot write .*out': No space left on device; make room"),
        atomic_path(tmp_path / "out") as temporary,
    ):
        temporary.write_text("x")
    assert names(tmp_path) == []


def test_a_folder_is_replaced_as_a_whole(tmp_path):
    target = tmp_path / "model"
    target.mkdir()
    (target / "stale").write_text("old")
    with atomic_folder(target) as temporary:
        (temporary / "sub").mkdir()
        (temporary / "sub" / "fresh").write_text("new")
        assert names(target) == ["stale"]
    assert names(target) == ["sub"]
    assert names(tmp_path) == ["model"]


def test_a_new_folder(tmp_path):
    with atomic_folder(tmp_path / "model") as temporary:
        (temporary / "a").write_text("1")
    assert names(tmp_path / "model") == ["a"]


def test_a_failure_leaves_the_old_folder(tmp_path):
    target = tmp_path / "model"
    target.mkdir()
    (target / "a").write_text("old")
    with pytest.raises(RuntimeError, match="half way"), atomic_folder(target) as temporary:
        stop_half_way(temporary / "a")
    assert (target / "a").read_text() == "old"
    assert names(tmp_path) == ["model"]


def test_a_failing_swap_restores_the_old_folder(tmp_path, monkeypatch):
    target = tmp_path / "model"
    target.mkdir()
    (target / "a").write_text("old")
    real = type(target).rename

    def rename(self, other):
        if self.name.endswith(".tmp"):
            raise OSError("no")
        return real(self, other)

    monkeypatch.setattr(type(target), "rename", rename)
    with pytest.raises(DataError, match="cannot write"), atomic_folder(target) as temporary:
        (temporary / "a").write_text("new")
    assert (target / "a").read_text() == "old"
    assert names(tmp_path) == ["model"]


def test_a_pipe_or_device_is_never_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(DataError, match="no regular file"), atomic_path(pipe) as temporary:
        temporary.write_text("new")
    assert pipe.is_fifo()
    assert names(tmp_path) == ["pipe"]
