"""Records survive the way over the wire to the last bit, and nothing else gets through."""

import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedkmeans._utils.typing import IntArray
from fedkmeans.client.delta_state import DeltaState
from fedkmeans.errors import FederationError, ParameterError, WireError
from fedkmeans.kernels.base import LocalSummary
from fedkmeans.protocol import codec, messages
from fedkmeans.protocol.codec import MAX_HEADER, WIRE_VERSION, Packed, decode, encode, from_bytes, to_bytes
from fedkmeans.protocol.declaration import Additive, Query, Reply, reply_type
from fedkmeans.protocol.exchange import Total
from fedkmeans.protocol.field_types import MAX_DEPTH, REGISTRY, Message, field_type
from fedkmeans.protocol.messages import Box, Bundle, Describe, LocalUpdate, Score, ScoreTotals, SendStatistics
from fedkmeans.protocol.statistics import ClusterStatistics, RunningTotal

# --- strategies --------------------------------------------------------------------------------

floats = st.floats(allow_nan=True, allow_infinity=True) | st.sampled_from([-0.0, 5e-324])
texts = st.text(st.characters(codec="utf-8"), max_size=8)
wholes = st.integers(-(2**64) + 1, 2**64 - 1)


@st.composite
def arrays(draw):
    shape = draw(st.lists(st.integers(0, 3), min_size=1, max_size=2))
    values = draw(st.lists(floats, min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
    array = np.array(values, dtype=np.float64).reshape(shape)
    return np.asfortranarray(array) if draw(st.booleans()) else array


def words():
    return st.builds(ClusterStatistics, arrays(), arrays(), arrays(), floats, floats)


def updates():
    return st.builds(LocalUpdate, arrays(), wholes, floats, texts, texts)


def totals():
    return st.builds(RunningTotal, words(), words())


counted = st.dictionaries(texts, st.none() | texts, max_size=3)
leaf_queries = st.one_of(
    updates(),
    st.builds(SendStatistics, updates()),
    st.builds(messages.SendDelta, updates(), texts, texts, texts, counted),
    st.builds(Score, arrays()),
    st.just(Describe()),
    st.just(messages.FindBox()),
    st.builds(messages.LocalClusters, wholes, texts, wholes, wholes, wholes, wholes),
    st.builds(messages.DrawPoint, arrays(), wholes, st.booleans(), wholes),
)
names = st.none() | st.lists(texts, max_size=3).map(tuple)
leaf_replies = st.one_of(
    st.builds(messages.LocalModel, arrays(), arrays()),
    st.builds(messages.ClusterTotals, arrays(), arrays(), arrays(), wholes),
    words(),
    st.builds(messages.StatisticsDelta, words(), wholes, texts),
    st.builds(messages.DeltaTotals, totals(), wholes, st.frozensets(texts, max_size=3)),
    st.builds(ScoreTotals, floats, floats, floats, wholes),
    st.builds(messages.Description, wholes, wholes, names, texts),
    st.builds(Box, arrays(), arrays()),
    st.builds(messages.CentroidSet, arrays(), arrays()),
    st.builds(messages.Candidate, arrays(), floats),
)


def bundles(leaves, kind):
    return st.recursive(leaves, lambda parts: st.lists(parts, max_size=3).map(tuple).map(kind), max_leaves=4)


queries, replies = bundles(leaf_queries, Bundle), bundles(leaf_replies, messages.BundleReply)
sizes = st.recursive(wholes, lambda parts: st.lists(parts, max_size=3).map(tuple), max_leaves=4)
everything = st.one_of(
    queries,
    replies,
    totals(),
    st.builds(Total, st.none() | replies, st.lists(texts, max_size=3).map(tuple), sizes),
    st.builds(DeltaState, totals(), st.none() | texts, words(), texts),
)
ALL_KINDS = tuple(REGISTRY.values())

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda parts: st.lists(parts, max_size=4) | st.dictionaries(st.text(max_size=5), parts, max_size=4),
    max_leaves=12,
)


def identical(one, two):
    """Equal to the last bit, and of the same types."""
    if type(one) is not type(two):
        return False
    if is_dataclass(one):
        return all(identical(getattr(one, f.name), getattr(two, f.name)) for f in fields(one))
    if isinstance(one, np.ndarray):
        return one.dtype == two.dtype and one.shape == two.shape and one.tobytes() == two.tobytes()
    if isinstance(one, float):
        return struct.pack("d", one) == struct.pack("d", two)
    if isinstance(one, tuple):
        return len(one) == len(two) and all(map(identical, one, two))
    return one == two


# --- there and back ----------------------------------------------------------------------------


@given(everything)
@settings(max_examples=400)
def test_a_record_comes_back_to_the_last_bit(record):
    packed = encode(record)
    assert packed.header.isascii()
    assert packed.numbers.dtype == np.float64
    assert packed.numbers.ndim == 1
    json.loads(packed.header, parse_constant=pytest.fail, parse_float=pytest.fail)
    assert identical(decode(packed, type(record)), record)
    again = from_bytes(to_bytes(packed))
    assert again.header == packed.header
    assert again.numbers.tobytes() == packed.numbers.tobytes()


def test_every_query_and_reply_is_known():
    kinds = [kind for kind in vars(messages).values() if isinstance(kind, type) and issubclass(kind, Message)]
    for kind in set(kinds) - {Additive, Query, Reply}:
        assert REGISTRY[kind.__name__] is kind
        if issubclass(kind, Query):
            assert issubclass(reply_type(kind), Reply)
    assert len(kinds) > 15


@pytest.mark.parametrize(
    "hint",
    [
        IntArray,  # it would come back as float64
        list[str],
        tuple[int, int],  # it would come back with any length
        Mapping[int, str],
        int | list[str],
        complex,
        np.ndarray,
    ],
)
def test_a_type_that_would_not_come_back_as_it_was_is_not_accepted(hint):
    with pytest.raises(TypeError, match="no way to send"):
        field_type(hint)


def test_an_empty_array_keeps_its_columns():
    back = decode(encode(messages.CentroidSet(np.empty((0, 7)), np.empty(0))), messages.CentroidSet)
    assert back.centroids.shape == (0, 7)


def test_what_is_read_cannot_be_changed_from_outside():
    packed = encode(Score(np.ones((2, 2))))
    back = decode(packed, Score)
    packed.numbers[:] = 7
    assert (back.centroids == 1).all()
    with pytest.raises(ValueError, match="read-only"):
        back.centroids[0] = 3


def test_numpys_own_numbers_travel_as_plain_ones():
    back = decode(encode(ScoreTotals(np.float64(3), 2, np.float32(1.5), np.int64(1))), ScoreTotals)
    assert identical(back, ScoreTotals(3.0, 2.0, 1.5, 1))


def test_a_rule_that_is_a_function_stays_at_home():
    update = LocalUpdate(np.zeros((1, 1)), 1, 0.0, lambda local: local.counts, "keep")
    for query in (update, SendStatistics(update), Bundle((SendStatistics(update),))):
        with pytest.raises(ParameterError, match="Use a rule by name, which all sites must know"):
            encode(query)


@pytest.mark.parametrize(
    "record",
    [
        object(),
        LocalSummary(*[np.zeros(1)] * 4, 1.0),
        messages.LocalClusters(2**64, "k-means", 1, 1, 0),
        messages.LocalClusters(True, "k-means", 1, 1, 0),
        messages.Description(1, 1, ("\udcff",)),
        Box(np.zeros(1), [0.0]),
    ],
)
def test_what_cannot_travel_is_refused_at_home(record):
    with pytest.raises(ParameterError):
        encode(record)


# --- nothing else gets through -----------------------------------------------------------------


def good(**changes):
    fields_ = {"n_clusters": 3, "method": "k-means", "n_init": 1, "max_iter": 9, "seed": 5, "max_rows": 7}
    fields_ |= changes
    return {"v": 3, "record": {"LocalClusters": {k: v for k, v in fields_.items() if v is not ...}}}


def box(low, high=(1,)):
    return {"v": 3, "record": {"Box": {"minimum": low, "maximum": list(high)}}}


NOTHING, TWO = np.empty(0), np.zeros(2)
DEEP = '{"Bundle":{"queries":[' * 40 + "]}}" * 40


@pytest.mark.parametrize(
    ("header", "numbers", "reason"),
    [
        ("no json", NOTHING, "no JSON"),
        ("", NOTHING, "no JSON"),
        (b"{}", NOTHING, "should be a text"),
        ("[" * 200_000, NOTHING, "too deeply nested"),
        ('{"v":3,"record":' + DEEP + "}", NOTHING, "more than 16 records within each other"),
        (" " * MAX_HEADER + "{}", NOTHING, "more than 4194304"),
        ('{"v":3,"v":3}', NOTHING, "key twice"),
        ('{"v":3,"record":NaN}', NOTHING, "belongs among the numbers"),
        ('{"v":3,"record":1.5}', NOTHING, "belongs among the numbers"),
        ('{"v":' + "9" * 5000 + "}", NOTHING, "whole number of 5000 digits"),
        ("[]", NOTHING, "no version"),
        ({"record": {}}, NOTHING, "no version"),
        ({"v": True, "record": {}}, NOTHING, "no version"),
        (
            {"v": 4, "record": {}},
            NOTHING,
            r"speaks version 4 .* this side version 3\. Install the same version",
        ),
        ({"v": 3}, NOTHING, "should have a version and a record"),
        ({**good(), "more": 1}, NOTHING, "should have a version and a record"),
        ({"v": 3, "record": []}, NOTHING, "wrong type"),
        ({"v": 3, "record": {}}, NOTHING, "should have one kind"),
        ({"v": 3, "record": {"Describe": {}, "FindBox": {}}}, NOTHING, "should have one kind"),
        ({"v": 3, "record": {"Shell": {}}}, NOTHING, "unknown kind 'Shell'"),
        (
            {"v": 3, "record": {"ClusterStatistics": {}}},
            NOTHING,
            "the kind ClusterStatistics, expected LocalClusters or Box or",
        ),
        ({"v": 3, "record": {"Describe": []}}, NOTHING, "should have the fields"),
        (good(seed=...), NOTHING, "should have the fields"),
        (good(more=1), NOTHING, "should have the fields"),
        (good(seed="5"), NOTHING, r"LocalClusters\.seed is '5', which has the wrong type"),
        (good(seed=True), NOTHING, "wrong type"),
        (good(seed=None), NOTHING, "wrong type"),
        (good(seed=2**64), NOTHING, r"below 2\*\*64"),
        (good(seed=10**30), NOTHING, "whole number of 31 digits"),
        (good(method=["k-means"]), NOTHING, "wrong type"),
        (good(method="\udcff"), NOTHING, "no valid text"),
        (good(), TWO, r"2 number\(s\) are left over"),
        (good(), TWO.astype(np.float32), "vector of float64"),
        (good(), TWO.reshape(1, 2), "vector of float64"),
        (good(), [0.0], "vector of float64"),
        (box([1]), NOTHING, r"should have 1 number\(s\), but only 0 are left"),
        (box([2], [1]), TWO, r"Box\.maximum should have 1 number"),
        (box([2**60]), TWO, "too large"),
        (box([0, 2**62]), TWO, "too large"),
        (box([10**6, 10**6]), TWO, "only 2 are left"),
        (box([1, 1, 1, 1, 1]), TWO, "for a shape"),
        (box([-1]), TWO, "for a shape"),
        (box([True]), TWO, "for a shape"),
        (box(["1"]), TWO, "for a shape"),
        (box("1"), TWO, "wrong type"),
        ({"v": 3, "record": {"Bundle": {"queries": [{"Box": {}}]}}}, NOTHING, "the kind Box, expected"),
    ],
)
def test_what_is_wrong_is_named_in_one_line(header, numbers, reason):
    text = json.dumps(header) if isinstance(header, dict) else header
    with pytest.raises(WireError, match=reason) as caught:
        decode(Packed(text, numbers), (messages.LocalClusters, Box, Describe, messages.FindBox, Bundle))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 700
    assert isinstance(caught.value, FederationError)


def test_a_set_names_everything_once():
    packed = encode(messages.DeltaTotals(RunningTotal.nothing(1, 1), 0, frozenset("ab")))
    assert '"exchanges":["a","b"]' in packed.header
    with pytest.raises(WireError, match=r"DeltaTotals\.exchanges names something twice"):
        decode(Packed(packed.header.replace('"b"', '"a"'), packed.numbers), messages.DeltaTotals)


def test_the_deepest_that_may_be_comes_through():
    query = Describe()
    for _ in range(MAX_DEPTH - 1):
        query = Bundle((query,))
    assert decode(encode(query), Bundle) == query
    with pytest.raises(WireError, match="within each other"):
        decode(encode(Bundle((query,))), Bundle)


def test_a_long_header_of_our_own_may_be_read():
    total = Total(None, tuple(f"a-site-with-a-rather-long-name-{i}" for i in range(150_000)), 0)
    packed = encode(total)
    assert len(packed.header) > MAX_HEADER
    with pytest.raises(WireError, match="characters, more than"):
        decode(packed, Total)
    assert decode(packed, Total, max_header=None) == total


def attempt(packed):
    """Whatever comes, a record or a WireError; a record must be one that can be sent again."""
    try:
        record = decode(packed, ALL_KINDS)
    except WireError:
        return
    assert identical(decode(encode(record), type(record)), record)


vectors = st.lists(floats, max_size=12).map(lambda values: np.array(values, dtype=np.float64))


@given(json_values | st.fixed_dictionaries({"v": st.just(WIRE_VERSION), "record": json_values}), vectors)
@settings(max_examples=300)
def test_any_json_is_a_record_or_refused(tree, numbers):
    attempt(Packed(json.dumps(tree), numbers))


@given(st.text(max_size=60), vectors)
def test_any_text_is_refused(text, numbers):
    attempt(Packed(text, numbers))


@given(everything, st.data())
@settings(max_examples=400)
def test_a_message_changed_anywhere_is_a_record_or_refused(record, data):
    packed = encode(record)
    tree, numbers = json.loads(packed.header), packed.numbers
    for _ in range(data.draw(st.integers(1, 3))):
        tree = mutated(tree, data)
    if data.draw(st.booleans()):
        numbers = numbers[: data.draw(st.integers(0, len(numbers)))]
    attempt(Packed(json.dumps(tree), numbers))


def mutated(tree, data):
    """JSON in which something, somewhere, is missing, added or different."""
    if isinstance(tree, dict | list) and tree and data.draw(st.integers(0, 3)):
        key = data.draw(st.sampled_from(sorted(tree) if isinstance(tree, dict) else range(len(tree))))
        tree = tree.copy()
        what = data.draw(st.integers(0, 5))
        if what == 0:
            del tree[key]
        elif what == 1 and isinstance(tree, dict):
            tree[data.draw(st.sampled_from(sorted(REGISTRY)) | st.text(max_size=3))] = tree.pop(key)
        else:
            tree[key] = mutated(tree[key], data)
        return tree
    return data.draw(json_values | st.integers(0, 5) | st.integers(2**62, 2**70))


@given(everything, st.data())
def test_a_header_changed_in_one_character_is_a_record_or_refused(record, data):
    packed = encode(record)
    place = data.draw(st.integers(0, len(packed.header) - 1))
    text = packed.header[:place] + data.draw(st.characters()) + packed.header[place + 1 :]
    attempt(Packed(text, packed.numbers))


# --- bytes -------------------------------------------------------------------------------------


def test_bytes_are_the_same_on_every_machine():
    data = to_bytes(encode(ScoreTotals(1.0, 2.0, 0.5, 1)))
    assert data[:4] == b"FKMW"
    assert struct.unpack("<IQ", data[4:16]) == (len(encode(ScoreTotals(1.0, 2.0, 0.5, 1)).header), 3)
    assert struct.unpack("<3d", data[-28:-4]) == (1.0, 2.0, 0.5)
    assert struct.unpack("<I", data[-4:])[0] == zlib.crc32(data[:-4])


def test_torn_or_altered_bytes_are_refused():
    data = to_bytes(encode(Box(np.ones(2), np.zeros(2))))
    for end in range(len(data)):
        with pytest.raises(WireError):
            from_bytes(data[:end])
    with pytest.raises(WireError):
        from_bytes(data + b"\0")
    for place in range(len(data)):
        for bit in range(8):
            altered = bytearray(data)
            altered[place] ^= 1 << bit
            with pytest.raises(WireError):
                from_bytes(bytes(altered))


@given(st.binary(max_size=60))
@example(b"FKMW" + b"\xff" * 12)
@example(
    b"FKMW"
    + struct.pack("<IQ", 1, 0)
    + b"\xff"
    + struct.pack("<I", zlib.crc32(b"FKMW\1" + b"\0" * 11 + b"\xff"))
)
def test_any_bytes_are_refused(data):
    with pytest.raises(WireError):
        from_bytes(data)


def test_nothing_is_allocated_for_a_claim(monkeypatch):
    """A message of a few bytes that speaks of 10¹² numbers is refused before any array is made."""
    claim = Packed(json.dumps(box([10**6, 10**6])), np.zeros(3))
    made = []
    real = np.array
    monkeypatch.setattr(codec.np, "array", lambda *args, **kw: made.append(real(*args, **kw)) or made[-1])
    with pytest.raises(WireError, match="only 3 are left"):
        decode(claim, Box)
    assert [len(array) for array in made] == [3]
