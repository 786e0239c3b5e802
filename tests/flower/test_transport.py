"""Through Flower the same model comes out as in process, and whatever else comes back counts as silence."""

import json
import logging
import os
import re
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.common.constant import ErrorCode
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_id
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from hypothesis import example, given
from hypothesis import strategies as st

from fedkmeans import InProcess, Site
from fedkmeans.errors import FederationError, WireError
from fedkmeans.flower import transport
from fedkmeans.flower.deploy import site_folder
from fedkmeans.flower.message import read_content, read_numbers, write_content
from fedkmeans.flower.transport import Flower, WaitPolicy
from fedkmeans.protocol.codec import Packed, decode, encode
from fedkmeans.protocol.journal import Journalled
from fedkmeans.protocol.messages import Describe, LocalUpdate, Score, SendStatistics
from fedkmeans.registry import ALGORITHMS
from tests.flower.grids import LocalGrid, reply_to
from tests.small_models import assert_same, outcome, small

RNG = np.random.default_rng(5)
ROWS = RNG.normal(size=(90, 3)) + 5 * RNG.integers(2, size=(90, 3))
NODES = {"a": 1, "b": 2, "c": 2**63 + 3}
IMPATIENT = WaitPolicy(timeout=0.2, wait=0.0, cool_down=0.0, poll=0.001)
START = ROWS[:3]


def sites():
    parts = zip("abc", np.split(ROWS, [20, 50]), strict=True)
    return [Site(name, X, feature_names=("x", "y", "z"), kernel="numpy") for name, X in parts]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Nobody needs to be waited for here, nor the disk."""
    monkeypatch.setattr(transport, "_LOOK_S", 0.01)
    monkeypatch.setattr(os, "fsync", lambda number: None)


@pytest.fixture
def folders(tmp_path):
    for site in sites():
        site_folder.prepare(tmp_path / site.name, site)
    return {NODES[name]: tmp_path / name for name in NODES}


@pytest.fixture
def federation(folders):
    """Make a federation of the three sites, some of whose replies are tampered with."""

    def make_(tamper=lambda node, message, reply: reply, grid=LocalGrid, **patience):
        usual = {name: getattr(IMPATIENT, name) for name in ("timeout", "wait", "cool_down", "poll")}
        return Flower(grid(folders, tamper), NODES, WaitPolicy(**{**usual, **patience}))

    return make_


def fitted(model, federation):
    return outcome(model.fit_federation(federation))


MODELS = {
    **{name: small(name) for name, algorithm in ALGORITHMS.items() if not algorithm.pooled},
    "client": small("last-word", memory="client", init="k-means++"),
    "client, few, restarts": small(
        "last-word", memory="client", n_init=2, clients_per_round=2, init="random"
    ),
    "server, restarts, scores": small("last-word", n_init=2, init="client_random", score_every=1),
    "few": small("last-word", clients_per_round=2, score_every=2),
    "paper, few": small("dwf", clients_per_round=2, init="random", max_local=3, score_every=1),
    "compact": small("last-word", weighting="by_compactness"),
    "forgetting, restarts": small("forgetting", n_init=2, init="k-means++"),
    "fkm, restarts": small("fkm", n_init=2, score_every=1),
}


# --- the same model ------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Too few centroids")
@pytest.mark.parametrize("name", MODELS)
def test_every_algorithm_finds_exactly_what_it_finds_in_process(name, federation):
    expected = fitted(MODELS[name], InProcess(sites()))
    assert_same(fitted(MODELS[name], federation()), expected)


class Killed(BaseException):
    """The server's process is gone; nobody catches this."""


class DyingGrid(LocalGrid):
    """Dies at its n-th pull, when the sites have answered and nobody has heard it."""

    def __init__(self, folders, dies_at=None):
        super().__init__(folders)
        self.dies_at, self.pulls = dies_at, 0

    def pull_messages(self, message_ids):
        found = super().pull_messages(message_ids)
        self.pulls += 1
        if self.pulls == self.dies_at:
            raise Killed
        return found


@pytest.mark.filterwarnings("ignore:Too few centroids")
@pytest.mark.parametrize("name", ["last-word", "client, few, restarts", "dwf", "fkm, restarts", "kfed"])
def test_a_server_that_dies_goes_on_with_its_journal(name, folders, tmp_path):
    model = MODELS[name]
    whole = DyingGrid(folders)
    expected = fitted(model, InProcess(sites()))
    assert_same(fitted(model, Flower(whole, NODES, IMPATIENT)), expected)
    assert whole.pulls > 2
    for when in range(1, whole.pulls + 1):
        journal = tmp_path / f"journal-{when}"
        dying = Flower(DyingGrid(folders, when), NODES, IMPATIENT)
        with pytest.raises(Killed), Journalled(dying, journal, "") as one:
            model.fit_federation(one)
        with Journalled(Flower(LocalGrid(folders), NODES, IMPATIENT), journal, "") as two:
            assert_same(fitted(model, two), expected)
            assert two.replayed == when - 1


# --- who does not answer -------------------------------------------------------------------------


def test_a_site_that_is_not_connected_is_silent_until_it_is_back(federation):
    sites = federation()
    sites.grid.connected.discard(NODES["b"])
    assert sites.clients == ("a", "b", "c")
    assert list(sites.ask(Describe(), sites.clients)) == ["a", "c"]
    assert sites.silent == {"b": "not connected"}
    assert {message.metadata.dst_node_id for message in sites.grid.messages} == {NODES["a"], NODES["c"]}
    sites.grid.connected.add(NODES["b"])
    assert list(sites.ask(Describe(), sites.clients)) == ["a", "b", "c"]
    assert sites.silent == {}


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes on only while somebody sleeps."""

    class Clock:
        now, slept = 1000.0, ()

        def monotonic(self):
            return self.now

        def sleep(self, seconds):
            self.now += seconds
            self.slept += (seconds,)

    clock = Clock()
    monkeypatch.setattr(transport, "time", clock)
    return clock


def of_node(name, change):
    """Do something to replies of one site."""
    return lambda node, message, reply: change(message, reply) if node == NODES[name] else reply


NEVER = of_node("b", lambda message, reply: None)


def asked(sites, name):
    return sum(message.metadata.dst_node_id == NODES[name] for message in sites.grid.messages)


def test_a_site_that_never_answers_costs_one_timeout_and_then_cools_down(federation, clock):
    sites = federation(NEVER, timeout=100, cool_down=1000, poll=1)
    assert list(sites.ask(Describe(), sites.clients)) == ["a", "c"]
    assert 1100 <= clock.now < 1102
    assert sites.silent == {"b": "no answer within 100 s"}
    for _ in range(3):
        assert list(sites.ask(Describe(), sites.clients)) == ["a", "c"]
        assert sites.silent == {"b": "did not answer in time lately"}
    assert clock.now < 1102
    assert asked(sites, "b") == 1
    clock.now += 1000
    sites.grid.tamper = lambda node, message, reply: reply
    assert list(sites.ask(Describe(), sites.clients)) == ["a", "b", "c"]


def test_messages_outlive_the_time_that_is_waited_for_them(federation):
    sites = federation(timeout=7)
    sites.ask(Describe(), sites.clients)
    assert {message.metadata.ttl for message in sites.grid.messages} == {67.0}


def test_all_are_answered_at_once_without_waiting(federation, clock):
    sites = federation(timeout=100, poll=1)
    sites.ask(Describe(), sites.clients)
    assert clock.slept == ()


def test_enough_answers_are_waited_for(federation, clock):
    sites = federation(min_answers=3, wait=500, timeout=10, poll=1)
    sites.grid.connected.discard(NODES["c"])
    sleep = clock.sleep

    def comes_back(seconds):
        sleep(seconds)
        if clock.now > 1030:
            sites.grid.connected.add(NODES["c"])

    clock.sleep = comes_back
    assert list(sites.ask(Describe(), sites.clients)) == ["a", "b", "c"]
    assert sites.silent == {}
    assert 1030 < clock.now < 1040
    assert [asked(sites, name) for name in "abc"] == [1, 1, 1]  # whoever has answered is left in peace


def test_too_few_answers_end_the_run_and_say_why(federation, clock):
    sites = federation(NEVER, min_answers=3, wait=50, timeout=10, poll=1)
    sites.grid.connected.discard(NODES["c"])
    reasons = r"1 site\(s\) answered and 3 must, after 50 s; b: no answer within 10 s, c: not connected\. "
    with pytest.raises(FederationError, match=reasons + "Bring the sites back and resume"):
        sites.ask(Describe(), sites.clients)
    assert 1050 <= clock.now < 1070
    assert asked(sites, "b") > 3


def test_fewer_are_enough_when_fewer_are_asked(federation):
    sites = federation(NEVER, min_answers=3)
    assert list(sites.ask(Describe(), ("a",))) == ["a"]
    assert sites.ask(Describe(), ()) == {}


def test_silence_of_all_ends_the_run_only_after_a_while(federation, clock):
    sites = federation(lambda *_: None, wait=300, timeout=10, poll=1)
    with pytest.raises(FederationError, match=r"0 site\(s\) answered and 1 must, after 300 s"):
        sites.ask(Describe(), sites.clients)
    assert clock.now >= 1300


def test_a_run_goes_on_without_who_is_silent(federation):
    found = fitted(small("last-word"), federation(NEVER))
    without = fitted(small("last-word"), InProcess([site for site in sites() if site.name != "b"]))
    assert set(found[4].participants) == {2}
    np.testing.assert_allclose(found[0], without[0], atol=2)


@pytest.mark.parametrize("patience", [{"timeout": 0}, {"poll": 0}, {"wait": -1}, {"min_answers": 0}])
def test_patience_that_makes_no_sense_is_refused(patience):
    with pytest.raises(ValueError, match=next(iter(patience))):
        WaitPolicy(**patience)


def test_a_federation_of_nobody_is_refused():
    with pytest.raises(FederationError, match="Register the keys"):
        Flower(LocalGrid({}), {})


# --- replies that are none -----------------------------------------------------------------------


def changed(content, packed=None, exchange=None, client=None):
    """The content of a reply with parts of it replaced."""
    own, own_exchange, own_client = read_content(content)
    return write_content(packed or own, exchange or own_exchange, client or own_client)


def renumbered(numbers):
    """Tamper with the numbers of a reply."""

    def change(message, reply):
        packed = read_content(reply.content)[0]
        return reply_to(message, changed(reply.content, Packed(packed.header, numbers(packed.numbers))))

    return change


def reheaded(old, new):
    def change(message, reply):
        packed = read_content(reply.content)[0]
        assert old in packed.header
        packed = Packed(packed.header.replace(old, new), packed.numbers)
        return reply_to(message, changed(reply.content, packed))

    return change


def put(value):
    def numbers(array):
        array = np.array(array)
        array[0] = value
        return array

    return renumbered(numbers)


def with_data(data):
    """Replies whose array is made of other bytes."""

    def change(message, reply):
        array = Array("float64", (3,), "numpy.ndarray", data)
        arrays = ArrayRecord({"numbers": array})
        return reply_to(message, RecordDict({"fedkmeans": reply.content["fedkmeans"], "arrays": arrays}))

    return change


def with_records(**records):
    def change(message, reply):
        parts = {**reply.content, **records}
        return reply_to(message, RecordDict({name: part for name, part in parts.items() if part is not None}))

    return change


def npy(array, version=(1, 0), **header):
    """A file in NumPy's format, with a header that may say something else."""
    import io

    from numpy.lib import format as npy_format

    stream = io.BytesIO()
    npy_format.write_array(stream, array, version=version, allow_pickle=True)
    data = stream.getvalue()
    for old, new in header.items():
        told = {"shape": str(array.shape), "fortran_order": "False", "descr": repr(array.dtype.str)}[old]
        padding = " " * 200
        whole = data[: data.index(b"\n")].decode("latin1")
        text = whole[10:].rstrip().replace(told, new)
        size = len(whole) - 10
        text = text.ljust(size) if len(text) <= size else text + padding
        data = data[:8] + (len(text) + 1).to_bytes(2, "little") + text.encode() + data[data.index(b"\n") :]
    return data


VECTOR = np.arange(3.0)
TEXTS = ConfigRecord({"header": "{}", "exchange": "x", "client": "b"})
OTHER_KIND = encode(sites()[1].answer(Describe()))
GARBAGE = {
    "a wrong shape": (reheaded("[3,3]", "[1,9]"), r"centroids has shape \(1, 9\), expected \(3, 3\)"),
    "too few numbers": (renumbered(lambda array: array[:-1]), "only 2 are left"),
    "too many numbers": (renumbered(lambda array: np.append(array, 0)), "left over"),
    "no numbers": (renumbered(lambda array: array[:0]), "only 0 are left"),
    "NaN": (put(np.nan), "missing"),
    "infinite": (put(-np.inf), "infinite"),
    "huge": (put(1e200), "huge"),
    "negative weights": (renumbered(lambda array: -np.abs(array) - 1), "negative"),
    "another version": (reheaded('"v":3', '"v":4'), "version 4 of the wire format"),
    "no version": (reheaded('"v"', '"w"'), "names no version"),
    "another kind": (lambda m, r: reply_to(m, changed(r.content, OTHER_KIND)), "Description"),
    "no JSON": (reheaded("{", "["), "no JSON"),
    "another's name": (lambda m, r: reply_to(m, changed(r.content, client="a")), "signed 'a'"),
    "another exchange": (lambda m, r: reply_to(m, changed(r.content, exchange="0" * 16)), "another exchange"),
    "no content": (lambda m, r: reply_to(m, RecordDict({})), "should have the parts"),
    "no arrays": (with_records(arrays=None), "should have the parts"),
    "an extra record": (with_records(more=ConfigRecord({})), "should have the parts"),
    "metrics": (
        with_records(fedkmeans=MetricRecord({"header": 1, "exchange": 2, "client": 3})),
        "should have a header",
    ),
    "records in the wrong place": (with_records(arrays=TEXTS), "one array"),
    "a missing text": (with_records(fedkmeans=ConfigRecord({"header": "{}"})), "an exchange and a client"),
    "a text that is a number": (
        with_records(fedkmeans=ConfigRecord({"header": 5, "exchange": "x", "client": "b"})),
        "the header should be a text",
    ),
    "a text that is a list": (
        with_records(fedkmeans=ConfigRecord({"header": "{}", "exchange": ["x"], "client": "b"})),
        "the exchange should be a text",
    ),
    "two arrays": (
        with_records(arrays=ArrayRecord({"numbers": Array(VECTOR), "more": Array(VECTOR)})),
        "one array",
    ),
    "an array of another name": (with_records(arrays=ArrayRecord({"x": Array(VECTOR)})), "one array"),
    "no bytes": (with_data(b""), "version 1.0"),
    "only a magic": (with_data(b"\x93NUMPY"), "version 1.0"),
    "no NumPy": (with_data(b"PK\x03\x04" + bytes(100)), "version 1.0"),
    "a pickle": (with_data(b"\x80\x04N."), "version 1.0"),
    "objects": (with_data(npy(np.array([None, 1], dtype=object))), "vector of float64"),
    "float32": (with_data(npy(VECTOR.astype("f4"))), "vector of float64"),
    "big-endian": (with_data(npy(VECTOR.astype(">f8"))), "vector of float64"),
    "a matrix": (with_data(npy(np.ones((2, 2)))), "vector of float64"),
    "a scalar": (with_data(npy(np.array(1.0))), "vector of float64"),
    "Fortran's order": (with_data(npy(VECTOR, fortran_order="True")), "vector of float64"),
    "version 2 of NumPy's format": (with_data(npy(VECTOR, version=(2, 0))), "version 1.0"),
    "a shape that is not there": (with_data(npy(VECTOR, shape="(99999999999,)")), "799999999992 bytes"),
    "a shape beyond all bounds": (with_data(npy(VECTOR, shape=f"({10**40},)")), "vector of float64"),
    "a shape in hexadecimal": (with_data(npy(VECTOR, shape=f"(0x{'f' * 6000},)")), "vector of float64"),
    "a negative shape": (with_data(npy(VECTOR, shape="(-1,)")), "vector of float64"),
    "a header that is no dict": (with_data(npy(VECTOR, shape="(((((")), "vector of float64"),
    "no salt": (with_data(npy(VECTOR[:0])), "no number in front"),
    "an error": (lambda m, r: Message(Error(2, "it raised"), reply_to=m), "error 2 at the site: it raised"),
    "an error without a reason": (lambda m, r: Message(Error(0), reply_to=m), "error 0 at the site"),
}
UPDATE = LocalUpdate(START, 1, 1e-8, "dynamic", "keep")


@pytest.mark.parametrize("what", GARBAGE)
def test_garbage_counts_as_silence_and_says_why(what, federation, caplog):
    change, reason = GARBAGE[what]
    sites = federation(of_node("b", change), cool_down=60)
    assert list(sites.ask(UPDATE, sites.clients)) == ["a", "c"]
    assert re.search(reason, sites.silent["b"]), sites.silent
    assert list(sites.silent) == ["b"]
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == f"Site 'b': {sites.silent['b']}"
    assert "\n" not in sites.silent["b"]
    sites.grid.tamper = lambda node, message, reply: reply
    assert list(sites.ask(UPDATE, sites.clients)) == ["a", "b", "c"]  # it answered at once: no cooling down


def test_what_a_site_says_of_its_errors_fills_no_log(federation, caplog):
    def change(message, reply):
        reason = "first line\nWARNING a line of its own\x1b[2J" + 10**6 * "x"
        return Message(Error(2, reason), reply_to=message)

    sites = federation(of_node("b", change))
    sites.ask(UPDATE, sites.clients)
    assert len(sites.silent["b"]) < 1000
    assert sites.silent["b"].isprintable()
    assert "first line" in sites.silent["b"]


@pytest.mark.parametrize("whose", ["b", "a"])
def test_a_reply_that_is_sent_again_does_not_count(whose, federation):
    """Neither a site's own of an earlier exchange, nor what another one has sent."""
    kept = {}

    def replay(message, reply):
        return reply_to(message, kept["reply"].content)

    sites = federation()
    answer = sites.grid.answer
    sites.grid.answer = lambda node, message: kept.setdefault(node, answer(node, message))
    first = sites.ask(UPDATE, sites.clients)
    kept["reply"] = kept[NODES[whose]]
    sites.grid.answer, sites.grid.tamper = answer, of_node("b", replay)
    again = sites.ask(UPDATE, sites.clients)
    assert list(again) == ["a", "c"]
    np.testing.assert_array_equal(again["a"].centroids, first["a"].centroids)
    assert "another exchange" in sites.silent["b"]


def test_a_reply_of_another_site_in_the_same_exchange_does_not_count(federation):
    kept = {}

    def copy(node, message, reply):
        kept[node] = reply
        return reply_to(message, kept[NODES["a"]].content) if node == NODES["b"] else reply

    sites = federation(copy)
    assert list(sites.ask(UPDATE, sites.clients)) == ["a", "c"]
    assert "signed 'a'" in sites.silent["b"]


class LateGrid(LocalGrid):
    """Delivers the reply to every message of one node only when something else is pulled."""

    def __init__(self, folders, tamper):
        super().__init__(folders, tamper)
        self.late = []

    def pull_messages(self, message_ids):
        due, self.late = self.late, []
        found = super().pull_messages(message_ids)
        self.late = [reply for reply in found if reply.metadata.src_node_id == NODES["b"]]
        return due + [reply for reply in found if reply not in self.late]


@pytest.mark.parametrize("query", [UPDATE, SendStatistics(UPDATE), Score(START), Describe()])
def test_a_reply_that_comes_late_never_counts(query, federation):
    sites = federation(grid=LateGrid, timeout=0.02, poll=0.03)  # so that each exchange pulls once
    for _ in range(3):
        assert list(sites.ask(query, sites.clients)) == ["a", "c"]
        assert sites.silent == {"b": "no answer within 0.02 s"}
    assert sites.grid.late


def test_a_reply_counts_once_even_if_it_comes_twice(federation):
    found = federation()
    pull = found.grid.pull_messages
    found.grid.pull_messages = lambda ids: 2 * pull(ids)
    expected = InProcess(sites()).total(Score(START), found.clients)
    assert found.total(Score(START), found.clients) == expected


def test_a_message_that_was_lost_is_sent_again(federation):
    lost = []

    def lose(message, reply):
        if len(lost) < 3:
            lost.append(message)
            return Message(Error(ErrorCode.MESSAGE_UNAVAILABLE, "gone"), reply_to=message)
        return reply

    sites = federation(of_node("b", lose), timeout=5)
    assert list(sites.ask(UPDATE, sites.clients)) == ["a", "b", "c"]
    assert sites.silent == {}
    assert [asked(sites, name) for name in "abc"] == [1, 4, 1]


def test_a_message_that_is_lost_for_ever_costs_one_timeout(federation, clock):
    def lose(message, reply):
        return Message(Error(ErrorCode.MESSAGE_UNAVAILABLE, "gone"), reply_to=message)

    sites = federation(of_node("b", lose), timeout=100, poll=1)
    assert list(sites.ask(UPDATE, sites.clients)) == ["a", "c"]
    assert 1100 <= clock.now < 1102
    assert sites.silent == {"b": "no answer within 100 s"}


def test_a_message_that_the_superlink_refuses_is_silence(federation):
    sites = federation()
    push = sites.grid.push_messages

    def refuse(messages):
        return [
            "" if message.metadata.dst_node_id == NODES["b"] else message_id
            for message, message_id in zip(messages, push(messages), strict=True)
        ]

    sites.grid.push_messages = refuse
    assert list(sites.ask(UPDATE, sites.clients)) == ["a", "c"]
    assert sites.silent == {"b": "the SuperLink took no message for it"}


# --- what Flower itself cannot read --------------------------------------------------------------


class StrictGrid(LocalGrid):
    """Behaves as Flower's own: replies are gone once pulled, and one that cannot be read spoils a pull.

    `spoil` turns the objects of node b's reply, by their number, into others; Flower makes a message of
    them.
    """

    spoil = staticmethod(lambda objects, number: (objects, number))

    def pull_messages(self, message_ids):
        found = []
        for message_id in message_ids:
            if message_id not in self.pushed:
                lost = next(one for one in self.messages if one.metadata.message_id == message_id)
                found.append(Message(Error(ErrorCode.MESSAGE_UNAVAILABLE, "gone"), reply_to=lost))
        for message in super().pull_messages(message_ids):
            objects = {number: one.deflate() for number, one in get_all_nested_objects(message).items()}
            if message.metadata.src_node_id == NODES["b"]:
                objects, number = self.spoil(objects, message.object_id)
            else:
                number = message.object_id
            found.append((number, objects))
        read = [one if isinstance(one, Message) else inflate_object_from_contents(*one) for one in found]
        for message in read:
            message.metadata.__dict__["_message_id"] = "x"
        return read


def no_text(objects, number):
    return {number: b"\xff" + objects[number]}, number


def no_protobuf(objects, number):
    child = next(one for one, data in objects.items() if data.startswith(b"RecordDict"))
    data = f"Message {child} 3".encode() + b"\x00" + b"\xff\xff\xff"
    return {**objects, get_object_id(data): data}, get_object_id(data)


def no_message(objects, number):
    return objects, next(one for one, data in objects.items() if data.startswith(b"ConfigRecord"))


def no_children(objects, number):
    data = b"Message  0\x00"
    return {get_object_id(data): data}, get_object_id(data)


def missing_child(objects, number):
    return {number: objects[number]}, number


@pytest.mark.parametrize("spoil", [no_text, missing_child, no_protobuf, no_message, no_children])
def test_a_reply_that_flower_cannot_read_hurts_nobody_else(spoil, federation, caplog):
    sites = federation(grid=StrictGrid, timeout=1)
    assert list(sites.ask(UPDATE, sites.clients)) == ["a", "b", "c"]
    sites.grid.spoil = spoil
    assert list(sites.ask(UPDATE, sites.clients)) == ["a", "c"]
    assert "cannot be read" in sites.silent["b"]
    sites.grid.spoil = lambda objects, number: (objects, number)
    assert "b" in sites.ask(UPDATE, sites.clients)


def test_one_bad_reply_among_many_is_found(federation):
    """A pull that raises ValueError and takes nothing away."""
    sites = federation()
    pull = sites.grid.pull_messages

    def raises(message_ids):
        of = {one.metadata.message_id: one.metadata.dst_node_id for one in sites.grid.messages}
        if NODES["b"] in [of[message_id] for message_id in message_ids]:
            raise ValueError("unreadable")
        return pull(message_ids)

    sites.grid.pull_messages = raises
    assert list(sites.ask(UPDATE, sites.clients)) == ["a", "c"]
    assert sites.silent == {"b": "its reply cannot be read: unreadable"}


# --- reading numbers -----------------------------------------------------------------------------


@given(st.lists(st.floats(allow_nan=True), max_size=40))
def test_numbers_come_back_as_they_were_sent(numbers):
    array = np.array(numbers, dtype=np.float64)
    assert read_numbers(Array(array).data).tobytes() == array.tobytes()


def refusal(read, data):
    """Why data is refused; None if it is read."""
    try:
        read(data)
    except WireError as error:
        return str(error)
    return None


@given(st.binary(max_size=200), st.integers(0, 140), st.booleans())
@example(b"", 0, True)
def test_whatever_bytes_come_nothing_but_a_wire_error_is_raised(noise, place, inside):
    data = Array(VECTOR).data
    data = data[:place] + noise + data[place + len(noise) * inside :]
    found = refusal(read_numbers, data)
    assert found is None or ("\n" not in found and len(found) < 200)


# --- meeting sites that the server has no list of ------------------------------------------------


def test_sites_that_meet_are_called_what_they_call_themselves(folders):
    found = Flower.meet(LocalGrid(folders), 3, IMPATIENT)
    assert found.nodes == NODES
    assert_same(fitted(small("last-word"), found), fitted(small("last-word"), InProcess(sites())))


def test_two_sites_of_one_name_do_not_meet(folders):
    with pytest.raises(FederationError, match=r"Two sites are called 'a'\. Give each a name of its own"):
        Flower.meet(LocalGrid({1: folders[1], 2: folders[1]}), 2, IMPATIENT)


def test_too_few_sites_do_not_begin(folders, clock):
    patience = WaitPolicy(timeout=1, wait=100, poll=1)
    with pytest.raises(FederationError, match=r"3 site\(s\) are connected and 4 must be, after 100 s"):
        Flower.meet(LocalGrid(folders), 4, patience)
    assert clock.now >= 1100


def test_sites_that_come_later_are_waited_for(folders, clock):
    grid = LocalGrid(folders)
    grid.connected = {1}
    sleep = clock.sleep

    def come(seconds):
        sleep(seconds)
        grid.connected = set(folders)

    clock.sleep = come
    assert Flower.meet(grid, 3, WaitPolicy(timeout=1, wait=100, poll=1)).clients == ("a", "b", "c")


def test_a_site_that_cannot_say_its_name_ends_the_meeting(folders, tmp_path):
    with pytest.raises(FederationError, match="Node 5 cannot say its name"):
        Flower.meet(LocalGrid({**folders, 5: tmp_path / "nothing"}), 4, IMPATIENT)


def test_a_site_that_does_not_say_its_name_is_not_left_out_in_silence(folders):
    """Three must take part; a federation of two would be another one."""
    with pytest.raises(FederationError, match=r"2 .* 3 "):
        Flower.meet(LocalGrid(folders, NEVER), 3, IMPATIENT)


def test_sites_may_be_files_of_a_folder(tmp_path):
    for site in sites():
        lines = ["x,y,z", *(",".join(map(repr, row)) for row in site.X.tolist())]
        (tmp_path / f"{site.name}.csv").write_text("\n".join(lines))
    grid = LocalGrid(dict.fromkeys(range(3)), run_config={"data": str(tmp_path)})
    found = Flower.meet(grid, 3, IMPATIENT)
    assert found.clients == ("a", "b", "c")
    assert_same(fitted(small("last-word"), found), fitted(small("last-word"), InProcess(sites())))


# --- what leaves a site --------------------------------------------------------------------------


def broken_rows(folder):
    rows = np.load(folder / "rows.npy")
    rows[3, 1] = np.nan
    np.save(folder / "rows.npy", rows)


def broken_about(folder):
    about = json.loads((folder / "site.json").read_text())
    (folder / "site.json").write_text(json.dumps({**about, "feature_names": ["secret 77.25"]}))


def broken_file(folder):
    (folder / "rows.npy").write_text("secret 77.25")


def no_folder(folder):
    (folder / "site.json").unlink()


@pytest.mark.parametrize("harm", [broken_rows, broken_about, broken_file, no_folder])
def test_an_error_at_a_site_tells_nothing_about_its_rows(harm, federation, folders, caplog):
    harm(folders[NODES["b"]])
    seen = []

    def look(message, reply):
        seen.append(reply)
        return reply

    sites = federation(of_node("b", look))
    assert list(sites.ask(UPDATE, sites.clients)) == ["a", "c"]
    (reply,) = seen
    assert reply.has_error()
    assert reply.error.reason == "DataError; the site's own log says more"
    assert any("The query is not answered" in record.message for record in caplog.records)
    assert "site join" in caplog.text  # the site's own log has the remedy


def test_an_error_that_nobody_thought_of_tells_nothing_either(federation, monkeypatch, caplog):
    def fail(site, query):
        raise RuntimeError(f"the row is {site.X[0]}")

    monkeypatch.setattr(Site, "answer", fail)
    sites = federation()
    with pytest.raises(FederationError, match="b: its reply is refused: error 1000 at the site: an error;"):
        sites.ask(UPDATE, sites.clients)
    assert "the row is" in caplog.text


@pytest.mark.parametrize(
    "query",
    [Score(START[:, :2]), Score(START * np.nan), LocalUpdate(START, 10**9, 1e-8, "dynamic", "keep")],
)
def test_a_site_refuses_a_query_that_makes_no_sense(query, federation, caplog):
    sites = federation()
    with pytest.raises(FederationError, match="error 1000 at the site: WireError; the site's own log"):
        sites.ask(query, sites.clients)
    assert "the query's" in caplog.text


def test_a_site_does_not_answer_in_anothers_name(folders, caplog):
    sites = Flower(LocalGrid(folders), {"a": 1, "x": 2}, IMPATIENT)
    assert list(sites.ask(Describe(), sites.clients)) == ["a"]
    assert "Use the join file that was made for this site" in caplog.text


def contents(sites, query):
    """The queries and replies of an exchange, as Flower carries them."""
    replies = []

    def look(node, message, reply):
        replies.append(reply)
        return reply

    sites.grid.tamper = look
    sites.ask(query, sites.clients)
    return sites.grid.messages, replies


def array_ids(messages):
    return [message.content["arrays"]["numbers"].object_id for message in messages]


def test_replies_of_equal_sites_differ_and_queries_to_all_are_the_same(tmp_path):
    folders = {}
    for node, name in enumerate("abc"):
        site_folder.prepare(tmp_path / name, Site(name, ROWS[:30]))
        folders[node] = tmp_path / name
    queries, replies = contents(Flower(LocalGrid(folders), {"a": 0, "b": 1, "c": 2}, IMPATIENT), UPDATE)
    assert len(set(array_ids(queries))) == 1
    assert len(set(array_ids(replies))) == 3
    sent = [read_content(reply.content)[0].numbers for reply in replies]
    np.testing.assert_array_equal(sent[0], sent[1])  # but for the salt


def test_a_message_is_little_more_than_its_numbers(tmp_path):
    rng = np.random.default_rng(0)
    site = Site("a", rng.random((40, 784)), kernel="numpy")
    site_folder.prepare(tmp_path / "a", site)
    query = LocalUpdate(rng.random((20, 784)), 1, 1e-8, "dynamic", "keep")
    for (message,) in contents(Flower(LocalGrid({1: tmp_path / "a"}), {"a": 1}, IMPATIENT), query):
        size = sum(len(one.deflate()) for one in get_all_nested_objects(message).values())
        assert 20 * 784 * 8 < size < 1.1 * 20 * 784 * 8


def test_nothing_but_the_reply_is_in_a_reply(federation):
    _, replies = contents(federation(), Score(START))
    for reply, site in zip(replies, sites(), strict=True):
        packed, _, name = read_content(reply.content)
        assert name == site.name
        assert set(reply.content["fedkmeans"]) == {"header", "exchange", "client"}
        assert decode(packed, type(site.answer(Score(START)))) == site.answer(Score(START))


def test_a_grid_needs_no_more_than_three_methods(folders):
    inner = LocalGrid(folders)
    names = ("get_node_ids", "push_messages", "pull_messages")
    grid = SimpleNamespace(**{name: getattr(inner, name) for name in names})
    assert len(Flower(grid, NODES, IMPATIENT).ask(Describe(), ("a", "b"))) == 2
