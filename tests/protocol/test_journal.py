"""A run that is broken off anywhere and started again ends exactly as if nothing had happened."""

import errno
import os
import resource
from itertools import pairwise

import numpy as np
import pytest

from fedkmeans import FKM, FederatedKMeans, InProcess, KFed
from fedkmeans.errors import FederationError, JournalError, ParameterError
from fedkmeans.protocol.codec import encode, from_bytes, size_in_bytes, to_bytes
from fedkmeans.protocol.exchange import Ask, ListClients, NewId, Total, run
from fedkmeans.protocol.journal import Journalled
from fedkmeans.protocol.journal_file import JournalFile
from fedkmeans.protocol.messages import Box, Describe, Description
from fedkmeans.registry import ALGORITHMS
from tests.lossy import Lossy
from tests.small_models import assert_same, outcome, small

REAL_FSYNC = os.fsync
RNG = np.random.default_rng(5)
X = RNG.normal(size=(120, 2)) + 4 * RNG.integers(2, size=(120, 2))
CLIENTS = np.repeat(np.arange(4), 30)


def federation():
    return InProcess.from_arrays(X, CLIENTS, kernel="numpy")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """No power fails in these tests, so they need not wait for the disk thousands of times."""
    monkeypatch.setattr(os, "fsync", lambda number: None)


class Killed(BaseException):
    """The process is gone; nobody catches this."""


class Dies:
    """A federation that dies at its n-th exchange, before the sites are asked or after they answered."""

    def __init__(self, inner, when=None, after=False):
        self.inner, self.when, self.after = inner, when, after
        self.exchange = 0

    @property
    def clients(self):
        return self.inner.clients

    def _send(self, ask, query, clients):
        if self.exchange == self.when and not self.after:
            raise Killed
        answer = ask(query, clients)
        if self.exchange == self.when:
            raise Killed
        self.exchange += 1
        return answer

    def ask(self, query, clients):
        return self._send(self.inner.ask, query, clients)

    def total(self, query, clients):
        return self._send(self.inner.total, query, clients)


def fit(model, federation, path, **kwargs):
    with Journalled(federation, path, "these settings") as journalled:
        model.fit_federation(journalled, **kwargs)
        return outcome(model), journalled.replayed


MODELS = {
    **{name: small(name) for name, algorithm in ALGORITHMS.items() if not algorithm.pooled},
    "few clients": small("last-word", clients_per_round=2, init="random", score_every=1),
    "client": small("last-word", memory="client", init="k-means++"),
    "client, few": small("last-word", memory="client", clients_per_round=1, max_rounds=6, init=X[:3]),
    "client, restarts": small("last-word", memory="client", n_init=2, score_every=2, init="random"),
    "server, restarts": small("last-word", n_init=2, init="client_random"),
    "forgetting, restarts": small("forgetting", n_init=2, init="k-means++"),
    "paper, restarts": small("dwf", n_init=2, clients_per_round=3, init="random"),
    "fkm, restarts": small("fkm", n_init=2, score_every=1),
}
undisturbed = pytest.mark.filterwarnings("ignore:Too few centroids")


# --- broken off anywhere -------------------------------------------------------------------------


@undisturbed
@pytest.mark.parametrize("name", MODELS)
def test_a_run_that_dies_at_any_exchange_ends_as_if_it_had_not(name, tmp_path):
    model = MODELS[name]
    whole = Dies(federation())
    expected = outcome(model.fit_federation(whole))
    recorded, replayed = fit(model, federation(), tmp_path / "undisturbed")
    assert_same(recorded, expected)
    assert replayed == 0
    for when in range(whole.exchange):
        for after in (False, True):
            path, sites = tmp_path / f"{when}{after}", federation()
            with pytest.raises(Killed):
                fit(model, Dies(sites, when, after), path)
            found, replayed = fit(model, sites, path)
            assert replayed == when
            assert_same(found, expected)


@pytest.mark.parametrize("written", [False, True])
def test_a_run_that_dies_at_any_entry_ends_as_if_it_had_not(written, tmp_path, monkeypatch):
    """Also between a name that was drawn and its use; clients keep what they said meanwhile."""
    model, append = MODELS["client, restarts"], JournalFile.append
    expected = outcome(model.fit_federation(federation()))

    def dies(self, packed):
        if len(self.places) == when and written:
            append(self, packed)
        if len(self.places) >= when:
            raise Killed
        append(self, packed)

    fit(model, federation(), tmp_path / "undisturbed")
    n_entries = len(edges((tmp_path / "undisturbed").read_bytes())) - 1
    assert n_entries > 20
    for when in range(n_entries):
        path, sites = tmp_path / str(when), federation()
        with monkeypatch.context() as patch:
            patch.setattr(JournalFile, "append", dies)
            with pytest.raises(Killed):
                fit(model, sites, path)
        assert_same(fit(model, sites, path)[0], expected)


@pytest.mark.parametrize("memory", ["server", "client", 0.9])
def test_lost_replies_are_replayed_as_lost(memory, tmp_path):
    def lossy():
        return Lossy(federation(), lose=lambda n: "013" if n == 4 else ("1",) if n % 3 == 1 else ())

    model = FederatedKMeans(3, memory=memory, init=X[:3], max_rounds=8, tol=0, random_state=0)
    whole = lossy()
    expected = outcome(model.fit_federation(whole))
    assert set(expected[4].participants) == {1, 3, 4}
    for when in range(whole.exchange):
        path, sites = tmp_path / str(when), lossy()
        with pytest.raises(Killed):
            fit(model, Dies(sites, when), path)
        assert_same(fit(model, sites, path)[0], expected)


@pytest.mark.parametrize(
    ("name", "settings"), [("dwf", {}), ("fkm", {}), ("last-word", {}), ("last-word", {"memory": "client"})]
)
def test_a_run_that_ended_in_silence_goes_on_when_sites_are_back(name, settings, tmp_path):
    """The journal must not keep the run from ever going on."""
    model, sites = small(name, max_rounds=9, **settings), federation()
    out_of_reach = Lossy(sites, lose=lambda n: "0123" if n >= 4 else ())
    for _ in range(2):
        with pytest.raises(FederationError, match=r"answered the query|none answered"):
            fit(model, out_of_reach, tmp_path / "journal")
    content = (tmp_path / "journal").read_bytes()
    found, replayed = fit(model, sites, tmp_path / "journal")
    assert replayed >= 4
    n_kept = len(edges(content)) - 2
    assert (tmp_path / "journal").read_bytes().startswith(content[: edges(content)[n_kept]])
    assert found[4].participants.iloc[-1] == 4


def test_a_run_may_die_again_and_again(tmp_path):
    model, sites = MODELS["client, few"], federation()
    expected = outcome(model.fit_federation(federation()))
    for attempt in range(40):
        try:
            found, _ = fit(model, Dies(sites, attempt % 2, after=attempt % 3 == 0), tmp_path / "journal")
            break
        except Killed:
            continue
    assert attempt > 8
    assert_same(found, expected)


@pytest.mark.parametrize("memory", ["server", "client"])
def test_clients_that_left_are_replayed_as_they_left(memory, tmp_path):
    model = FederatedKMeans(3, memory=memory, init=X[:3], max_rounds=6, tol=0, random_state=0)

    def run(federation, sites, path=None):
        def leave(state, info):
            if str(info.round) in sites.clients and info.round > 1:
                sites.remove(str(info.round))

        if path is None:
            return outcome(model.fit_federation(federation, on_round=leave))
        return fit(model, federation, path, on_round=leave)[0]

    sites = federation()
    whole = Dies(sites)
    expected = run(whole, sites)
    assert list(expected[4].asked) == [4, 4, 3, 2, 2, 2]
    for when in range(whole.exchange):
        path, sites = tmp_path / str(when), federation()
        with pytest.raises(Killed):
            run(Dies(sites, when), sites, path)
        assert_same(run(sites, sites, path), expected)


def test_who_was_there_is_told_look_by_look(tmp_path):
    sites = federation()

    def look(leaves):
        seen = []
        for step in range(6):
            if step == 3:
                seen.append(sorted((yield Ask(Describe(), ("0",)))))
            if leaves and step in (2, 5):
                sites.remove(sites.clients[-1])
            seen.append((yield ListClients()))
        return seen

    with Journalled(sites, tmp_path / "journal", "") as journalled:
        seen = run(journalled, look(leaves=True))
    assert [len(names) for names in seen] == [4, 4, 3, 1, 3, 3, 2]
    with Journalled(federation(), tmp_path / "journal", "") as journalled:
        assert run(journalled, look(leaves=False)) == seen
        assert not journalled.replaying
        assert len(journalled.clients) == 4  # from here on, as it is


# --- what is replayed ----------------------------------------------------------------------------


class Nobody:
    """A federation that must not be asked."""

    @property
    def clients(self):
        raise AssertionError

    ask = total = new_id = clients


@undisturbed
@pytest.mark.parametrize("name", MODELS)
def test_a_finished_run_is_replayed_without_asking_anybody(name, tmp_path):
    expected, _ = fit(MODELS[name], federation(), tmp_path / "journal")
    content = (tmp_path / "journal").read_bytes()
    found, replayed = fit(MODELS[name], Nobody(), tmp_path / "journal")
    assert_same(found, expected)
    assert replayed > 1
    assert (tmp_path / "journal").read_bytes() == content


def test_how_far_the_replay_is(tmp_path):
    model, seen = MODELS["last-word"], []
    with pytest.raises(Killed):
        fit(model, Dies(federation(), 4), tmp_path / "journal")
    with Journalled(federation(), tmp_path / "journal", "these settings") as journalled:
        assert journalled.replaying
        model.fit_federation(
            journalled, on_round=lambda *_: seen.append((journalled.replayed, journalled.replaying))
        )
    # One exchange for the columns, one for the start, then one per round.
    assert seen == [(3, True), (4, False), (4, False), (4, False)]


def test_names_are_replayed_too(tmp_path):
    def draw(n):
        names = [""] * n
        for place in range(n):
            names[place] = yield NewId()
        return names

    with Journalled(federation(), tmp_path / "journal", "") as journalled:
        first = run(journalled, draw(3))
    with Journalled(federation(), tmp_path / "journal", "") as journalled:
        again = run(journalled, draw(5))
    assert again[:3] == first
    assert len(set(again)) == 5


def test_what_is_handed_out_is_the_same_the_first_time(tmp_path):
    """Also in memory: a sum over an array that lies otherwise may be rounded otherwise."""

    class Odd(Nobody):
        def ask(self, query, clients):
            return {"b": Description(np.int64(3), 1, None), "a": Description(4, 1, None)}

        def total(self, query, clients):
            turned = np.asfortranarray(X[:4])
            return Total(Box(turned, turned), ("a",), 3)

    seen = []
    for inner in (Odd(), Nobody()):
        with Journalled(inner, tmp_path / "journal", "") as journalled:
            replies = journalled.ask(Describe(), ("a", "b"))
            seen.append((list(replies), type(replies["b"].n_samples), replies))
            total = journalled.total(Describe(), ("a",))
            seen[-1] += (total.record.minimum.strides, total.record.minimum.tolist())
    assert seen[0] == seen[1]
    assert seen[0][:2] == (["b", "a"], int)


def test_a_rule_that_is_a_function_cannot_be_written_down(tmp_path):
    model = FederatedKMeans.paper(3, weighting=lambda local: local.counts, init=X[:3])
    with pytest.raises(ParameterError, match="Use a rule by name"):
        fit(model, federation(), tmp_path / "journal")


# --- interrupted from the keyboard ---------------------------------------------------------------


@pytest.mark.parametrize("where", ["between", "within"])
@pytest.mark.parametrize("name", ["client, restarts", "last-word"])
def test_an_interrupted_run_goes_on(name, where, tmp_path):
    """The score that is asked for after an interrupt is no part of the run."""
    model, sites = MODELS[name], federation()
    expected = outcome(model.fit_federation(federation()))

    class Interrupted(Dies):
        def _send(self, ask, query, clients):
            self.exchange += 1
            if where == "within" and self.exchange == 5:
                raise KeyboardInterrupt
            return ask(query, clients)

    def stop(state, info):
        if where == "between" and info.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(model, Interrupted(sites), tmp_path / "journal", on_round=stop)
    assert model.stop_reason_ == "interrupted"
    assert model.n_iter_ in (1, 2)
    assert_same(fit(model, sites, tmp_path / "journal")[0], expected)


# --- the wrong run -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [
        FederatedKMeans(4, max_rounds=4, tol=0, random_state=1),
        FederatedKMeans(3, max_rounds=4, tol=0, random_state=2),
        FederatedKMeans(3, max_rounds=4, tol=0, random_state=1, memory="client"),
        FederatedKMeans(3, max_rounds=4, tol=0, random_state=1, max_local=2),
        FederatedKMeans(3, max_rounds=4, tol=0, random_state=1, clients_per_round=2),
        FederatedKMeans(3, max_rounds=4, tol=0),
        KFed(3, random_state=1),
        FKM(3, random_state=1),
    ],
)
def test_a_run_with_other_settings_is_refused(other, tmp_path):
    fit(MODELS["last-word"], federation(), tmp_path / "journal")
    content = (tmp_path / "journal").read_bytes()
    with pytest.raises(JournalError, match=r"journal' belongs to a run with other settings.*random_state"):
        fit(other, federation(), tmp_path / "journal")
    assert (tmp_path / "journal").read_bytes() == content


def test_another_fingerprint_is_refused_at_once(tmp_path):
    Journalled(federation(), tmp_path / "journal", "one").close()
    with pytest.raises(JournalError, match="its fingerprint is another one"):
        Journalled(Nobody(), tmp_path / "journal", "two")
    Journalled(Nobody(), tmp_path / "journal", "one").close()  # and it is not left locked


def test_a_journal_of_another_version_is_said_to_be_one(tmp_path, monkeypatch):
    fit(MODELS["last-word"], federation(), tmp_path / "journal")
    monkeypatch.setattr("fedkmeans.__version__", "99")
    with pytest.raises(JournalError, match=r"\(it was written by fedkmeans [\d.]+, numpy "):
        fit(MODELS["fkm"], federation(), tmp_path / "journal")


@pytest.mark.parametrize("content", [b"a,b\n1,2\n", b"x", b"\0" * 100, b"FKMX" + b"\0" * 40])
def test_a_file_that_is_no_journal_is_left_alone(content, tmp_path):
    path = tmp_path / "clients.csv"
    path.write_bytes(content)
    with pytest.raises(JournalError, match=r"clients\.csv' is not a journal"):
        Journalled(federation(), path, "")
    assert path.read_bytes() == content


def test_other_records_are_no_journal(tmp_path):
    (tmp_path / "journal").write_bytes(to_bytes(encode(Describe())))
    with pytest.raises(JournalError, match=r"cannot be read: .*the kind Describe, expected Opening"):
        Journalled(federation(), tmp_path / "journal", "")


def test_places_where_no_file_can_be(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere" / "journal"):
        with pytest.raises(JournalError, match="Choose a file in an existing folder"):
            Journalled(federation(), path, "")


def test_two_runs_do_not_write_to_one_journal(tmp_path):
    pytest.importorskip("fcntl")
    first = Journalled(federation(), tmp_path / "journal", "")
    with pytest.raises(JournalError, match="in use by another run"):
        Journalled(federation(), tmp_path / "journal", "")
    first.close()
    Journalled(federation(), tmp_path / "journal", "").close()


def test_a_closed_journal_asks_nobody(tmp_path):
    journalled = Journalled(Nobody(), tmp_path / "journal", "")
    journalled.close()
    with pytest.raises(JournalError, match="was closed"):
        journalled.ask(Describe(), ("a",))


# --- what happens to files -----------------------------------------------------------------------


def edges(data):
    """Where entries end."""
    found = [0]
    while found[-1] < len(data):
        found.append(found[-1] + size_in_bytes(data[found[-1] :]))
    return found


@pytest.fixture
def written(tmp_path):
    """(path, content, outcome) of a whole run in which no names are drawn."""
    path = tmp_path / "journal"
    found, _ = fit(MODELS["few clients"], federation(), path)
    return path, path.read_bytes(), found


def test_a_torn_entry_is_cut_off(written):
    path, content, expected = written
    ends = edges(content)
    cuts = {end + step for end in ends[:-1] for step in (0, 1, 3, 17, 40)} | {len(content) - 1}
    for cut in sorted(cuts):
        for rubbish in (b"", bytes(30)) if cut > ends[1] else (b"",):
            path.write_bytes(content[:cut] + rubbish)
            assert_same(fit(MODELS["few clients"], federation(), path)[0], expected)
            assert path.read_bytes() == content


def test_damage_before_the_end_is_an_error(written):
    path, content, _ = written
    ends = edges(content)
    for start, end in pairwise(ends[:-1]):
        for place in (start, start + 5, start + 9, (start + end) // 2, end - 1):
            damaged = bytearray(content)
            damaged[place] ^= 64
            path.write_bytes(damaged)
            with pytest.raises(JournalError, match=r"is damaged: entry|is not a journal"):
                Journalled(federation(), path, "these settings")
            assert path.read_bytes() == damaged


def test_a_damaged_last_entry_is_heard_again(written):
    path, content, expected = written
    damaged = bytearray(content)
    damaged[-20] ^= 1
    path.write_bytes(damaged)
    assert_same(fit(MODELS["few clients"], federation(), path)[0], expected)
    assert path.read_bytes() == content


def test_an_answer_is_on_the_disk_before_anybody_sees_it(tmp_path, monkeypatch):
    path, flushed = tmp_path / "journal", []

    def flush(number):
        REAL_FSYNC(number)
        flushed.append(os.fstat(number).st_size)

    monkeypatch.setattr(os, "fsync", flush)

    def conversation():
        for request in (ListClients(), Ask(Describe(), ("0", "1")), NewId(), Ask(Describe(), ("0",))):
            before = len(flushed)
            yield request
            assert len(flushed) > before
            assert flushed[-1] == path.stat().st_size == edges(path.read_bytes())[-1]

    with Journalled(federation(), path, "") as journalled:
        assert flushed  # the opening, and the folder that has a new name
        run(journalled, conversation())


def test_a_full_disk_loses_nothing(tmp_path):
    path, model, sites = tmp_path / "journal", MODELS["client"], federation()
    expected = outcome(model.fit_federation(federation()))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    fit(model, federation(), tmp_path / "undisturbed")
    enough = (tmp_path / "undisturbed").stat().st_size
    for share in (0.3, 0.6, 0.9):
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (int(enough * share), hard))
            with pytest.raises(FederationError, match=r"journal': .*Make room on the disk and run again"):
                fit(model, sites, path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        content = path.read_bytes()
        assert edges(content)[-1] == len(content) > 0.1 * enough
    assert_same(fit(model, sites, path)[0], expected)


def test_after_a_failed_write_nobody_is_asked(tmp_path, monkeypatch):
    def full(number):
        raise OSError(errno.ENOSPC, "No space left on device")

    sites = Dies(federation())
    with Journalled(sites, tmp_path / "journal", "") as journalled:
        size = (tmp_path / "journal").stat().st_size
        monkeypatch.setattr(os, "fsync", full)
        for remedy in ("No space left on device. Make room", "could not be written to"):
            with pytest.raises(JournalError, match=remedy):
                journalled.ask(Describe(), ("0",))
        assert sites.exchange == 1
    assert (tmp_path / "journal").stat().st_size == size


def test_entries_can_be_read_by_anything_that_reads_records(written):
    _, content, _ = written
    ends = edges(content)
    headers = [from_bytes(content[a:b]).header for a, b in pairwise(ends)]
    assert "these settings" in headers[0]
    # The opening, who is there, and then one entry an exchange: nobody came or went.
    assert sum('"Present"' in header for header in headers) == 1
    assert sum('"Heard"' in header for header in headers) == len(headers) - 2
