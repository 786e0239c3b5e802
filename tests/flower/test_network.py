"""Sites in network namespaces of their own, over links that delay and lose packets, or are cut."""

import shutil
import time

import pytest

from fedkmeans.flower.transport import WaitPolicy
from tests.flower import bad_link
from tests.flower.processes import blobs, check_model, federation

pytestmark = pytest.mark.faults

HOST = "10.123.1.1"  # our end of the first link; the others come to it through theirs
NAMES = ("site-0", "site-1", "site-2")


@pytest.fixture(scope="module")
def linked(tmp_path_factory):
    """A federation, and the links of its sites."""
    reason = bad_link.why_not()
    if reason is not None:
        pytest.skip(reason)
    root = tmp_path_factory.mktemp("network")
    with (
        bad_link.links(NAMES, delay=0.1, loss=0.02) as links,
        federation(root, blobs(), start=[], host=HOST, listen="0.0.0.0") as running,
    ):
        for name in NAMES:
            running.start_site(name, shutil.which("ip"), "netns", "exec", links[name].namespace)
        running.wait_for_sites(*NAMES, timeout=150)
        yield running, links
        for name in NAMES:  # before the links are gone
            running.kill_gently(name)


def test_a_slow_link_that_loses_packets_changes_nothing_but_the_time(linked):
    running, links = linked
    rounds = {"max_rounds": 3, "min_rounds": 3}
    run, _ = running.start_run("slow", n_clusters=3, seed=5, tuning=rounds, waiting=WaitPolicy(timeout=90))
    assert running.wait_for_run(run, timeout=300)["status"] == "finished"
    check_model(run, running.sites, everybody=True, **rounds)
    for link in links.values():
        assert link.passed > 300
        assert 0.005 < link.lost / (link.passed + link.lost) < 0.04


def test_a_link_that_is_cut_for_half_a_minute_is_used_again_when_it_is_back(linked):
    running, links = linked
    many = {"max_rounds": 60, "min_rounds": 60}
    waiting = WaitPolicy(timeout=15, cool_down=15)
    run, _ = running.start_run("cut", n_clusters=3, seed=5, tuning=many, waiting=waiting)
    running.wait_for_round(run, 1)
    links["site-2"].cut = True
    time.sleep(30)
    links["site-2"].cut = False
    last = max(line["round"] for line in run.progress())
    assert any("site-2" in line["missing"] for line in run.progress())
    running.wait_for_line(
        run, lambda line: line["round"] > last and "site-2" in line["answered"], "site-2 to be back", 150
    )
    run.ask_to_stop()
    assert running.wait_for_run(run)["status"] == "interrupted"
    assert all({"site-0", "site-1"} <= set(line["answered"]) for line in run.progress())
    check_model(run, running.sites, **many)
