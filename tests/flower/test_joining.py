"""A site looks at the server before it joins: who it is, and what time it has."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import SimpleNamespace

import pytest

from fedkmeans.errors import FederationError
from fedkmeans.flower import joining
from fedkmeans.flower.certificates import new_authority
from fedkmeans.flower.joining import check_server

NOW = datetime(2026, 2, 28, 23, 59, 58, tzinfo=UTC)


def told(ahead):
    """What a server says to a site whose clock is so many seconds ahead."""
    return format_datetime(NOW - timedelta(seconds=ahead), usegmt=True)


@pytest.mark.parametrize("ahead", [0, 4, 6, -6, -300])
def test_clocks_that_flower_takes_are_taken(ahead):
    joining._check_clock(told(ahead), NOW)


@pytest.mark.parametrize(("ahead", "text"), [(20, "20 s ahead of the"), (-400, "400 s behind the")])
def test_a_clock_that_flower_would_refuse_is_told(ahead, text):
    with pytest.raises(FederationError, match=f"The clock of this computer is {text} server's.*NTP"):
        joining._check_clock(told(ahead), NOW)


@pytest.mark.parametrize("nonsense", [None, "", "yesterday", "Sat, 28 Feb 2026 23:59:58 -0000"])
def test_a_server_that_tells_no_time_is_taken_as_it_is(nonsense):
    joining._check_clock(nonsense, NOW)


def test_a_server_that_is_not_there_is_named(tmp_path):
    authority = tmp_path / "authority.crt"
    authority.write_bytes(new_authority("trial").certificate)
    member = SimpleNamespace(join=SimpleNamespace(server="localhost:1"), authority=authority)
    assert check_server(member) == "localhost:1: Connection refused"
