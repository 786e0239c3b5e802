"""What honest sites send is let through, and what none would send is not."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkmeans import Site, SitePolicy
from fedkmeans.errors import WireError
from fedkmeans.kernels.weighting import ECHOING, WEIGHTINGS
from fedkmeans.protocol.codec import decode, encode
from fedkmeans.protocol.declaration import reply_type
from fedkmeans.protocol.messages import (
    LOCAL_METHODS,
    Box,
    Bundle,
    BundleReply,
    Candidate,
    CentroidSet,
    ClusterTotals,
    Describe,
    Description,
    DrawPoint,
    FindBox,
    LocalClusters,
    LocalModel,
    LocalUpdate,
    Score,
    ScoreTotals,
    SendDelta,
    SendStatistics,
    StatisticsDelta,
)
from fedkmeans.protocol.statistics import ClusterStatistics
from fedkmeans.protocol.validation import check_reply
from tests.strategies import federations


def queries(name, centroids, n_clusters, seed, exchange, counted):
    """One query of every kind, and of local work every variety."""
    rules = [
        LocalUpdate(centroids, steps, 1e-8, rule, empty)
        for rule in WEIGHTINGS
        for steps, empty in ((1, "keep"), (3, "relocate"), (2, "drop"))
    ]
    words = [
        update for update in rules if update.weighting not in ECHOING and update.empty_clusters == "keep"
    ]
    return [
        *rules,
        *map(SendStatistics, words),
        SendDelta(words[0], "run", "sum", exchange, {name: counted}),
        Score(centroids),
        Describe(),
        FindBox(),
        *(LocalClusters(n_clusters, method, 1, 3, seed) for method in LOCAL_METHODS),
        LocalClusters(n_clusters, "k-means", 1, 1, seed),
        *(
            DrawPoint(start, 2, spread, seed)
            for start in (centroids, centroids[:0])
            for spread in (False, True)
        ),
    ]


@given(federations(max_rows=25, max_clients=2), st.integers(1, 4), st.integers(0, 99), st.data())
@settings(max_examples=60)
def test_what_a_site_sends_is_let_through(problem, min_cluster_size, seed, data):
    X, clients, centroids = problem
    rows = X[clients == 0]
    weight = data.draw(st.sampled_from([None, "some", "one row weighs all"]))
    if weight is not None:
        weight = np.random.default_rng(seed).random(len(rows)) * (1 if weight == "some" else 1e-9)
        weight[0] += 1e-3
    names = tuple(f"column {j}" for j in range(X.shape[1])) if data.draw(st.booleans()) else None
    site = Site("a", rows, weight, names, SitePolicy(min_cluster_size), kernel="numpy")
    counted = None
    for exchange, moved in enumerate([centroids, centroids + 0.5, centroids[::-1]]):
        asked = queries("a", moved, len(centroids), seed, str(exchange), counted)
        whole = Bundle((*asked, Bundle(tuple(asked[-2:]))))
        reply = site.answer(whole)
        for n_features in (X.shape[1], None):
            check_reply(whole, reply, n_features)
        check_reply(whole, decode(encode(reply), reply_type(Bundle)), None)
        counted = str(exchange)
    site.forget_deltas()
    change = SendDelta(asked[0], "run", "sum", "new", {"a": counted})
    assert site.answer(change).lost == 1
    check_reply(change, site.answer(change), None)


# --- a good pair of each kind, and what can be wrong with it -------------------------------------

CENTROIDS = np.array([[0.0, 0, 0], [1, 1, 1]])
UPDATE = LocalUpdate(CENTROIDS, 1, 1e-8, "dynamic", "keep")
WORD = ClusterStatistics(np.array([[3.0, 3, 3], [0, 0, 0]]), np.array([3.0, 0]), np.array([1.0, 0]), 2.0, 3.0)
CHANGE = SendDelta(UPDATE, "run", "sum", "now", {"a": None})
NAN, INF, HUGE = float("nan"), float("inf"), 2e151

GOOD = {
    "model": (UPDATE, LocalModel(CENTROIDS, np.array([1.0, 0.0]))),
    "word": (SendStatistics(UPDATE), WORD),
    "change": (CHANGE, StatisticsDelta(-WORD, 0, "now")),
    "score": (Score(CENTROIDS), ScoreTotals.of(2.0, 3.0)),
    "description": (Describe(), Description(3, 2, ("a", "b"), "numpy")),
    "box": (FindBox(), Box(np.zeros(3), np.ones(3))),
    "clusters": (LocalClusters(2, "k-means", 1, 1, 0), CentroidSet(CENTROIDS, np.array([2.0, 1.0]))),
    "candidate": (DrawPoint(CENTROIDS[:0], 1, False, 0), Candidate(np.zeros(3), 1.0)),
    "bundle": (
        Bundle((Describe(), Score(CENTROIDS))),
        BundleReply((Description(1, 1, None), ScoreTotals.of(0.0, 1.0))),
    ),
}


def put(array, value, place=0):
    changed = np.array(array)
    changed.flat[place] = value
    return changed


BAD_NUMBERS = ((NAN, "NaN"), (INF, "infinite"), (-INF, "infinite"), (HUGE, "huge"), (-HUGE, "huge"))
BAD_SHAPES = (np.zeros(4), np.zeros((3, 3)), np.zeros((2, 4)), np.zeros(()), np.zeros((1, 2, 3)))


def bad_arrays():
    """(name, field, array, reason): every array of every reply with every kind of trouble."""
    for name, (_, reply) in GOOD.items():
        holder = reply.difference if name == "change" else reply
        for field in getattr(holder, "__slots__", ()):
            array = getattr(holder, field)
            if isinstance(array, np.ndarray):
                # A box may be infinite as a whole, not in one place.
                yield from ((name, field, put(array, value), reason) for value, reason in BAD_NUMBERS)
                yield from (
                    (name, field, bad, "shape")
                    for bad in BAD_SHAPES
                    if bad.shape not in (array.shape, (3, 3))
                )
                yield name, field, array.astype(np.float32), "float64|different"


@pytest.mark.parametrize(("name", "field", "array", "reason"), list(bad_arrays()))
def test_arrays_that_cannot_be_are_refused(name, field, array, reason):
    query, reply = GOOD[name]
    if name == "change":
        bad = replace(reply, difference=replace(reply.difference, **{field: array}))
    else:
        bad = replace(reply, **{field: array})
    with pytest.raises(WireError, match=reason):
        check_reply(query, bad, 3)


@pytest.mark.parametrize("name", GOOD)
def test_good_ones_pass(name):
    query, reply = GOOD[name]
    check_reply(query, reply, 3)
    assert reply_type(type(query)) is type(reply)


@pytest.mark.parametrize("name", GOOD)
def test_the_wrong_kind_is_refused(name):
    query, reply = GOOD[name]
    for other in [answer for _, answer in GOOD.values()] + [
        ClusterTotals(CENTROIDS, CENTROIDS[0], CENTROIDS, 1),
        None,
    ]:
        if type(other) is not type(reply):
            with pytest.raises(WireError, match=f"is answered with {type(reply).__name__}, the reply is"):
                check_reply(query, other, 3)


CHANGES = [
    ("model", {"weights": np.array([1.0, -1e-9])}, "weights has negative"),
    ("word", {"weight": np.array([-3.0, 0])}, "weight has negative"),
    ("word", {"holders": np.array([1.0, 1])}, "holders is not one where"),
    ("word", {"holders": np.array([0.5, 0])}, "holders is not one where"),
    ("word", {"weighted_sum": put(WORD.weighted_sum, 1.0, 5)}, "huge"),  # without any weight
    ("word", {"weighted_sum": put(WORD.weighted_sum, 4e150)}, "huge"),
    ("word", {"inertia": NAN}, "inertia is nan"),
    ("word", {"inertia": -1.0}, r"inertia is -1\.0, expected 0 or more"),
    ("word", {"n_samples": 0.0}, "n_samples"),
    ("word", {"n_samples": INF}, "n_samples is inf"),
    ("change", {"exchange": "before"}, "another exchange"),
    ("change", {"difference": None}, "difference is no ClusterStatistics"),
    ("change", {"lost": 2}, "lost is 2"),
    ("change", {"lost": -1}, "lost is -1"),
    ("change", {"lost": 1}, "and yet what has changed"),
    ("change", {"difference": replace(WORD, holders=np.array([2.0, 0]))}, "holders"),
    ("change", {"difference": replace(WORD, inertia=NAN)}, "inertia"),
    ("change", {"difference": replace(WORD, n_samples=-INF)}, "n_samples"),
    ("score", {"n_clients": 2}, "n_clients is 2"),
    ("score", {"n_samples": 0.0}, "n_samples"),
    ("score", {"n_samples": NAN}, "n_samples is nan"),
    ("score", {"inertia": -2.0}, "inertia"),
    ("score", {"inertia": INF}, "inertia is inf"),
    ("score", {"client_scores": 0.7}, "is not inertia / n_samples"),
    ("score", {"client_scores": NAN}, "client_scores is nan"),
    ("description", {"n_samples": 0}, "n_samples is 0"),
    ("description", {"n_samples": 2**60}, "n_samples"),
    ("description", {"n_features": 0, "feature_names": ()}, "n_features is 0"),
    ("description", {"feature_names": ("a",)}, "1 column names for 2 columns"),
    ("description", {"feature_names": ("a", "b" * 10_001)}, "10001 characters"),
    ("description", {"kernel": "k" * 101}, "kernel has 101 characters"),
    ("box", {"minimum": np.array([0.0, 2, 0])}, "minimum is larger"),
    ("box", {"minimum": np.full(3, INF)}, "infinite"),
    ("box", {"minimum": np.full(3, -INF), "maximum": np.full(3, INF)}, "infinite"),
    ("box", {"minimum": np.zeros(2), "maximum": np.zeros(2)}, "shape"),
    ("clusters", {"counts": np.array([1.0, -1.0])}, "counts has negative"),
    ("clusters", {"centroids": np.zeros((3, 3)), "counts": np.ones(3)}, "3 centroids, 2 were asked for"),
    ("clusters", {"centroids": np.zeros((0, 2)), "counts": np.ones(0)}, "shape"),
    ("candidate", {"weight": -1.0}, "weight is -1"),
    ("candidate", {"weight": INF}, "weight is inf"),
    ("bundle", {"replies": (Description(1, 1, None),)}, "1 replies to a bundle of 2"),
    ("bundle", {"replies": (Description(1, 1, None), Description(1, 1, None))}, "Score is answered with"),
    ("bundle", {"replies": (Description(1, 1, None), ScoreTotals.of(NAN, 1.0))}, "inertia is nan"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "changes", "reason"), CHANGES)
def test_what_no_site_would_send_is_refused(name, changes, reason):
    query, reply = GOOD[name]
    with pytest.raises(WireError, match=reason) as caught:
        check_reply(query, replace(reply, **changes), 3)
    assert "\n" not in str(caught.value)


def test_without_columns_there_is_nothing():
    for query, reply in (
        (FindBox(), Box(np.zeros(0), np.zeros(0))),
        (GOOD["clusters"][0], CentroidSet(np.zeros((1, 0)), np.ones(1))),
    ):
        with pytest.raises(WireError, match="no columns"):
            check_reply(query, reply, None)


def test_a_box_has_two_sides_of_one_length():
    for low, high in ((np.zeros(3), np.ones(2)), (np.zeros(3), None), (np.full(3, INF), np.full(2, -INF))):
        with pytest.raises(WireError, match="maximum"):
            check_reply(FindBox(), Box(low, high), None)


def test_what_sites_with_few_rows_send():
    small = Site("a", np.ones((1, 3)), kernel="numpy")
    for query, _ in (GOOD["box"], GOOD["clusters"], GOOD["candidate"]):
        check_reply(query, small.answer(query), 3)
    assert np.isinf(small.answer(FindBox()).minimum).all()
    assert small.answer(GOOD["clusters"][0]).centroids.shape == (0, 3)
    assert small.answer(GOOD["candidate"][0]).weight == 0


def test_the_largest_numbers_that_a_site_accepts_pass():
    site = Site("a", np.full((7, 3), 1e150) * [[1], [-1], [1], [0.1], [-1], [1], [1]], kernel="numpy")
    update = replace(UPDATE, centroids=np.full((2, 3), [[1e150], [-1e150]]))
    for query in (update, SendStatistics(update), FindBox(), GOOD["clusters"][0]):
        check_reply(query, site.answer(query), 3)


def test_a_reply_of_another_exchange_is_not_taken():
    """Somebody sends the same reply a second time."""
    site = Site("a", np.random.default_rng(0).normal(size=(20, 3)), kernel="numpy")
    first = site.answer(CHANGE)
    check_reply(CHANGE, first, 3)
    with pytest.raises(WireError, match="another exchange"):
        check_reply(replace(CHANGE, exchange="next", counted={"a": "now"}), first, 3)
