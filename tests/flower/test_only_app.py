"""The program that keeps a site to our app."""

import stat
import subprocess

import pytest

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
