"""Sites that come later get what the first ones got; sites that go are cut off, and keep their names."""

import pytest

from fedkmeans.errors import FederationError, ParameterError
from fedkmeans.flower.deploy import certificates, services
from fedkmeans.flower.deploy.folder import CONNECTION, FederationDetails, new_federation
from fedkmeans.flower.deploy.join_file import JoinFile
from fedkmeans.flower.deploy.joining import make_ready
from fedkmeans.flower.deploy.membership import add_sites, remove_site
from fedkmeans.flower.transport import WaitPolicy
from tests.flower.processes import blobs, federation, free_ports


@pytest.fixture
def folder(tmp_path):
    settings = FederationDetails("trial", "localhost", *free_ports(2), ("north", "south"), ("age", "bmi"))
    return new_federation(tmp_path / "server", settings)


def test_a_site_that_is_added_gets_what_the_first_ones_got(folder):
    assert add_sites(folder, ["east", "west"]) is False  # the server is not running
    assert folder.read().sites == ("north", "south", "east", "west")
    first, later = (JoinFile.read(folder / "join" / f"{name}.toml") for name in ("north", "east"))
    assert (later.server, later.columns, later.authority) == (first.server, first.columns, first.authority)
    assert later.key
    assert later.key != first.key
    assert (folder / "keys/east.pub").exists()


def test_a_site_that_is_added_may_bring_its_own_key(folder):
    public = certificates.site_public(certificates.new_key().public_key())
    add_sites(folder, ["east"], {"east": public})
    assert JoinFile.read(folder / "join/east.toml").key == ""
    assert (folder / "keys/east.pub").read_bytes() == public


@pytest.mark.parametrize(
    ("sites", "keys", "why"),
    [
        (["north"], {}, "there is, or was, a site 'north'"),
        (["east", "east"], {}, "two sites have the same name"),
        (["../east"], {}, "cannot be called so"),
        (["east"], {"west": b""}, "a key is given for 'west'"),
    ],
)
def test_what_cannot_be_added_changes_nothing(folder, sites, keys, why):
    before = {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}
    with pytest.raises(ParameterError, match=why):
        add_sites(folder, sites, keys)
    assert {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()} == before


def test_a_site_that_never_was_registered_is_just_forgotten(folder):
    remove_site(folder, "south")
    assert folder.read().sites == ("north",)
    assert not (folder / "join/south.toml").exists()
    with pytest.raises(ParameterError, match="there is, or was"):
        add_sites(folder, ["south"])
    with pytest.raises(ParameterError, match="no site 'south'; there are north"):
        remove_site(folder, "south")
    with pytest.raises(ParameterError, match="at least one site"):
        remove_site(folder, "north")


def test_a_registered_site_is_removed_only_while_the_server_can_take_its_key_back(folder):
    folder.keep_nodes({"north": 1, "south": 2})
    with pytest.raises(FederationError, match="federation serve"):
        remove_site(folder, "south")
    assert folder.read().sites == ("north", "south")
    assert folder.nodes() == {"north": 1, "south": 2}


@pytest.mark.faults
def test_sites_come_and_go_while_the_server_is_running(tmp_path):
    sites = blobs(3)
    with federation(tmp_path, sites[:2]) as running:
        assert add_sites(running.folder, ["site-2"]) is True
        join = JoinFile.read(running.folder / "join/site-2.toml")
        running.members["site-2"] = make_ready(join, sites[2], tmp_path / "site-2")
        (running.ports["site-2"],) = free_ports(1)
        running.start_site("site-2")
        running.wait_for_sites("site-0", "site-1", "site-2")
        waiting = WaitPolicy(timeout=60, wait=90)
        run, _ = running.start_run("all", n_clusters=3, seed=0, tuning={"max_rounds": 2}, waiting=waiting)
        assert running.wait_for_run(run)["status"] == "finished"
        assert all(line["answered"] == ["site-0", "site-1", "site-2"] for line in run.progress())
        remove_site(running.folder, "site-2")
        running.processes.pop("site-2").wait(30)  # it is cut off, and ends
        nodes = services.flwr(running.folder, "supernode", "list", CONNECTION)["nodes"]
        assert sum(node["status"] == "online" for node in nodes) == 2
        run, _ = running.start_run("two", n_clusters=3, seed=0, tuning={"max_rounds": 2}, waiting=waiting)
        assert running.wait_for_run(run)["status"] == "finished"
        assert all(line["answered"] == ["site-0", "site-1"] for line in run.progress())
