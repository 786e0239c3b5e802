"""The programs that keep a site to our app."""

import shutil
import stat
import subprocess

import pytest
from flwr.supercore.constant import TASK_TYPE_TO_COMMAND

from fedkmeans.errors import FederationError
from fedkmeans.flower import only_app
from fedkmeans.flower.client_app import app
from fedkmeans.flower.deploy import services, site_programs

pytestmark = pytest.mark.slow


def test_it_is_flowers_program_with_our_app(monkeypatch):
    found = []

    def program():
        assert only_app.runtime.install_from_fab(b"anything", skip_prompt=True) is None
        load = only_app.runtime.get_load_client_app_fn(default_app_ref="", app_path=None, multi_app=True)
        found.append(load("somebody/another", "1.0.0", "hash"))

    for name in (only_app.UNPACK, only_app.FIND):
        monkeypatch.setattr(only_app.runtime, name, getattr(only_app.runtime, name))  # set back afterwards
    monkeypatch.setattr(only_app, "flwr_clientapp", program)
    only_app.main()
    assert found == [app]


@pytest.mark.parametrize("name", [only_app.UNPACK, only_app.FIND])
def test_a_flower_that_works_in_another_way_is_not_used(monkeypatch, name):
    monkeypatch.delattr(only_app.runtime, name)
    monkeypatch.setattr(only_app, "flwr_clientapp", lambda: pytest.fail("it was started"))
    with pytest.raises(SystemExit, match=f"runs apps in another way .{name} is not there"):
        only_app.main()


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "it's a home"
    site_programs.write_programs(folder, services.program(site_programs.EXECUTOR))
    return folder


def test_a_site_starts_flowers_executor_and_our_app_and_nothing_else(folder):
    path = services.supernode("localhost:1", folder, 1).environment["PATH"]
    programs = folder / "flower/bin"
    assert path == str(programs)
    for name in TASK_TYPE_TO_COMMAND.values():
        assert shutil.which(name, path=path) == str(programs / name)
        started = subprocess.run([programs / name, "--help"], capture_output=True, text=True, check=False)
        if name == site_programs.APP:
            assert (started.returncode, "--runtime-api-address" in started.stdout) == (0, True)
        else:
            assert (started.returncode, started.stdout) == (1, "")
            assert "runs the app of fedkmeans and no other" in started.stderr
    executor = subprocess.run([programs / "flower-superexec", "--help"], capture_output=True, check=True)
    assert b"superexec" in executor.stdout.lower()
    assert {stat.S_IMODE(program.stat().st_mode) for program in programs.iterdir()} == {0o700}


def test_a_folder_that_would_be_two_on_a_path_is_refused(tmp_path):
    with pytest.raises(FederationError, match="must not have ':' in its path"):
        site_programs.write_programs(tmp_path / "12:30", "flower-superexec")


def test_a_site_begins_where_its_app_can_be_started(folder):
    site_programs.check_programs(folder)


def test_a_site_does_not_begin_where_its_app_cannot_be_started(tmp_path):
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "noexec", "tmpfs", tmp_path], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"this machine mounts no disk: {mounted.stderr.decode().strip()}")
    try:
        site_programs.write_programs(tmp_path, "flower-superexec")
        with pytest.raises(FederationError, match=r"flwr-clientapp' cannot be started.*noexec"):
            site_programs.check_programs(tmp_path)
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)


def test_a_site_says_why_its_app_cannot_be_started(tmp_path, monkeypatch):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho first >&2\necho 'another version of Flower' >&2\nexit 1\n")
    python.chmod(0o700)
    monkeypatch.setattr(site_programs.sys, "executable", str(python))
    site_programs.write_programs(tmp_path, "flower-superexec")
    with pytest.raises(FederationError, match="cannot be started: another version of Flower"):
        site_programs.check_programs(tmp_path)
