"""A site looks at the server before it joins: who it is, and what time it has."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import SimpleNamespace

import pytest

from fedkmeans.flower.deploy import joining
from fedkmeans.flower.deploy.certificates import new_authority
from fedkmeans.flower.deploy.joining import check_server

NOW = datetime(2026, 2, 28, 23, 59, 58, tzinfo=UTC)


def about_clock(ahead, told=None):
    """What a site says whose clock is so many seconds ahead, and whose server answers at once."""
    server = NOW - timedelta(seconds=ahead)
    told = told or format_datetime(server.replace(microsecond=0), usegmt=True)
    return joining._about_clock(told, NOW, NOW)


@pytest.mark.parametrize("ahead", [0, 4.9, 5, -5, -304.9, -305])
def test_clocks_that_flower_takes_are_taken(ahead):
    assert about_clock(ahead) is None


@pytest.mark.parametrize(("ahead", "text"), [(20, "19 s ahead of the"), (-400, "400 s behind the")])
def test_a_clock_that_flower_would_refuse_is_told(ahead, text):
    assert f"the clock of this computer is {text} server's" in about_clock(ahead)


def test_a_server_that_is_slow_to_answer_is_not_taken_for_a_clock_that_is_off():
    told = format_datetime(NOW + timedelta(seconds=30), usegmt=True)
    assert joining._about_clock(told, NOW, NOW + timedelta(seconds=30)) is None


@pytest.mark.parametrize("nonsense", ["yesterday", "Sat, 28 Feb 2020 23:59:58 -0000"])
def test_a_server_that_tells_no_time_is_taken_as_it_is(nonsense):
    assert about_clock(0, nonsense) is None
    assert joining._about_clock(None, NOW, NOW) is None


def test_a_server_that_is_not_there_is_named(tmp_path):
    (tmp_path / "authority.crt").write_bytes(new_authority("trial").certificate)
    member = SimpleNamespace(join=SimpleNamespace(server="localhost:1"), folder=tmp_path)
    assert check_server(member) == "localhost:1: Connection refused"


@pytest.mark.parametrize(
    "line",
    [
        "ERROR: Server error '500 Internal Server Error'",
        "INFO : Run ID 4 is not in `RUNNING` status. Ignoring message 6d87.",
    ],
)
def test_a_supernode_that_is_alive_and_of_no_use_is_noticed(tmp_path, line):
    log, said = tmp_path / "supernode.log", []
    log.write_text(f"of an earlier one: {line}\n")
    start = log.stat().st_size
    with log.open("a") as file:
        file.write(f"SuperNode ID: 7\nSent successfully\n{line}\n")
    alive = SimpleNamespace(poll=lambda: None)
    assert joining._watch(alive, log, start, said.append) in line
    assert said == ["Connected; waiting for questions. Ctrl-C ends it.", "Answered 1 question(s)."]
