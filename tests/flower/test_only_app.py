"""The program that keeps a site to our app."""

import stat
import subprocess

import pytest

from fedkmeans.errors import FederationError
from fedkmeans.flower import only_app, services
from fedkmeans.flower.client_app import app


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


def test_the_program_stands_where_flower_looks_first(tmp_path):
    home = tmp_path / "it's a home"
    program = services.supernode("localhost:1", tmp_path, tmp_path, tmp_path, home, 1)
    first = program.environment["PATH"].split(":")[0]
    assert first == str(home / "bin")
    assert stat.S_IMODE((home / "bin/flwr-clientapp").stat().st_mode) == 0o700
    said = subprocess.run([home / "bin/flwr-clientapp", "--help"], capture_output=True, text=True, check=True)
    assert "--runtime-api-address" in said.stdout
    services.check_clientapp(home)


def test_a_site_does_not_begin_where_the_program_cannot_be_started(tmp_path):
    # Flower would look further along PATH, find its own program and start that.
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "noexec", "tmpfs", tmp_path], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"this machine mounts no disk: {mounted.stderr.decode().strip()}")
    try:
        with pytest.raises(FederationError, match=r"flwr-clientapp' cannot be started .*Permission denied"):
            services.check_clientapp(tmp_path)
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)


def test_a_site_does_not_begin_with_a_program_that_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(services.sys, "executable", "/bin/false")
    with pytest.raises(FederationError, match=r"cannot be started .*exit status 1"):
        services.check_clientapp(tmp_path)
