"""What algorithms ask is let through to the rows, and what makes no sense is not."""

from dataclasses import fields, is_dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkmeans import InProcess
from fedkmeans.errors import WireError
from fedkmeans.kernels.weighting import WEIGHTINGS
from fedkmeans.protocol.codec import decode, encode
from fedkmeans.protocol.messages import (
    LOCAL_METHODS,
    Bundle,
    Describe,
    DrawPoint,
    FindBox,
    LocalClusters,
    LocalUpdate,
    Query,
    Score,
    SendDelta,
    SendStatistics,
)
from fedkmeans.protocol.validation import check_query
from fedkmeans.registry import ALGORITHMS, make
from tests.protocol.test_codec import queries
from tests.strategies import federations

RNG = np.random.default_rng(5)
X = RNG.normal(size=(90, 3)) + 5 * RNG.integers(2, size=(90, 3))
CENTROIDS = X[:4]
NAN, INF = float("nan"), float("inf")


class Checking(InProcess):
    """A federation whose sites look at every query as they do when it comes over a wire."""

    seen = ()

    def _check(self, query, clients):
        self.seen += (type(query),)
        for client in clients:
            sent = query.for_client(client)
            check_query(decode(encode(sent), type(query)), self.sites[client].X.shape[1])

    def ask(self, query, clients):
        self._check(query, clients)
        return super().ask(query, clients)

    def total(self, query, clients):
        self._check(query, clients)
        return super().total(query, clients)


def small(name, **settings):
    if "max_rounds" in ALGORITHMS[name].parameters():
        settings = {"max_rounds": 3, "tol": 0, **settings}
    return make(name, n_clusters=3, random_state=1, **settings)


MODELS = [
    *(small(name) for name, algorithm in ALGORITHMS.items() if not algorithm.pooled),
    *(small("last-word", init=init, n_init=2) for init in ("random", "client_random", "k-means++")),
    small("last-word", memory="client", clients_per_round=2, score_every=1),
    small("wf", weighting="by_compactness", empty_clusters="relocate", max_local=3),
    small("wf", weighting="by_size"),
]


@pytest.mark.filterwarnings("ignore:Too few centroids")
@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_what_algorithms_ask_is_let_through(model):
    federation = Checking.from_arrays(X, np.arange(90) % 4, kernel="numpy")
    model.fit_federation(federation)
    assert len(federation.seen) > 1


@pytest.mark.filterwarnings("ignore:Too few centroids")
@given(federations(max_rows=25, max_clients=3), st.sampled_from(sorted(ALGORITHMS)), st.integers(0, 9))
@settings(max_examples=40)
def test_whatever_the_rows_are(problem, name, seed):
    rows, clients, centroids = problem
    if ALGORITHMS[name].pooled:
        return
    model = make(name, n_clusters=min(len(centroids), len(np.unique(rows, axis=0))), random_state=seed)
    if hasattr(model, "max_rounds"):
        model.set_params(max_rounds=3)
    try:
        model.fit_federation(Checking.from_arrays(rows, clients, kernel="numpy"))
    except WireError:
        raise
    except ValueError:
        pass  # too few rows for an algorithm; that is for others to test


# --- a good query of each kind, and what can be wrong with it ------------------------------------

UPDATE = LocalUpdate(CENTROIDS, 5, 1e-8, "dynamic", "keep")
CLUSTERS = LocalClusters(3, "k-means", 1, 10, 2**64 - 1)
DRAW = DrawPoint(CENTROIDS, 2, False, 0)
GOOD = [
    UPDATE,
    *(replace(UPDATE, weighting=rule) for rule in WEIGHTINGS),
    *(replace(UPDATE, empty_clusters=what) for what in ("keep", "relocate", "drop")),
    replace(UPDATE, tol_local=0.0),
    replace(UPDATE, centroids=CENTROIDS * 1e149),
    SendStatistics(UPDATE),
    SendDelta(UPDATE, "run", "sum", "now", {"a": None}),
    Score(CENTROIDS),
    Score(CENTROIDS[:1]),
    Describe(),
    FindBox(),
    *(replace(CLUSTERS, method=method) for method in LOCAL_METHODS),
    DRAW,
    replace(DRAW, centroids=CENTROIDS[:0]),
    Bundle((UPDATE, Score(CENTROIDS), Bundle((Describe(),)))),
]


@pytest.mark.parametrize("query", GOOD, ids=lambda query: type(query).__name__)
def test_a_good_query_is_let_through(query):
    check_query(query, 3)


def put(value):
    changed = CENTROIDS.copy()
    changed[1, 2] = value
    return changed


BAD_CENTROIDS = {
    "too few columns": CENTROIDS[:, :2],
    "too many columns": np.ones((4, 4)),
    "a vector": CENTROIDS[0],
    "a cube": np.ones((2, 2, 3)),
    "NaN": put(NAN),
    "infinite": put(-INF),
    "huge": put(1e151),
}
BAD = {
    **{f"update, {what}": replace(UPDATE, centroids=bad) for what, bad in BAD_CENTROIDS.items()},
    **{f"score, {what}": Score(bad) for what, bad in BAD_CENTROIDS.items()},
    **{f"draw, {what}": replace(DRAW, centroids=bad) for what, bad in BAD_CENTROIDS.items()},
    "update, no centroids": replace(UPDATE, centroids=CENTROIDS[:0]),
    "score, no centroids": Score(CENTROIDS[:0]),
    "draw, no columns": replace(DRAW, centroids=np.empty((0, 0))),
    "no steps": replace(UPDATE, max_local=0),
    "negative steps": replace(UPDATE, max_local=-1),
    "steps without end": replace(UPDATE, max_local=10**6 + 1),
    "a negative tolerance": replace(UPDATE, tol_local=-1e-9),
    "no tolerance": replace(UPDATE, tol_local=NAN),
    "endless tolerance": replace(UPDATE, tol_local=INF),
    "an unknown rule": replace(UPDATE, weighting="by_magic"),
    "a rule of another kind": replace(UPDATE, weighting=""),
    "unknown empty clusters": replace(UPDATE, empty_clusters="hide"),
    "a bad word": SendStatistics(replace(UPDATE, max_local=0)),
    "a bad change": SendDelta(replace(UPDATE, max_local=0), "run", "sum", "now", {"a": None}),
    "no clusters": replace(CLUSTERS, n_clusters=0),
    "too many clusters": replace(CLUSTERS, n_clusters=2**40),
    "no starts": replace(CLUSTERS, n_init=0),
    "no iterations": replace(CLUSTERS, max_iter=0),
    "an unknown method": replace(CLUSTERS, method="magic"),
    "a negative seed": replace(CLUSTERS, seed=-1),
    "a mean of nothing": replace(DRAW, mean_of=0),
    "a mean of all": replace(DRAW, mean_of=2**50),
    "a negative seed of a draw": replace(DRAW, seed=-1),
    "a bad part": Bundle((Describe(), Bundle((Score(CENTROIDS[:, :1]),)))),
}


@pytest.mark.parametrize("what", BAD)
def test_a_query_that_makes_no_sense_is_refused(what):
    with pytest.raises(WireError) as found:
        check_query(BAD[what], 3)
    assert "\n" not in str(found.value)
    assert len(str(found.value)) < 300


@given(queries, st.integers(1, 3))
def test_whatever_comes_over_the_wire_nothing_else_is_raised(query, n_features):
    """Queries with whatever fields; the rest of them would be wrong in most."""
    said = ""
    try:
        check_query(query, n_features)
    except WireError as error:
        said = str(error)
    assert "\n" not in said


ODD = {
    np.ndarray: [*BAD_CENTROIDS.values(), CENTROIDS[:0], np.empty((0, 0)), np.empty(0), np.ones(())],
    int: [0, -1, 2**64 - 1, -(2**64) + 1],
    float: [NAN, INF, -INF, -1.0, 1e308],
    str: ["", "x" * 10**5, "\n", "\x00", "dynamic ", "KEEP"],
    bool: [True],
}
# Names may be anything, and a seed any number.
ANYTHING_GOES = ("run", "total", "exchange", "counted", "spread")


def mutations(query: Query):
    """The query with one field after the other replaced by something odd."""
    for field in fields(query):
        value = getattr(query, field.name)
        if is_dataclass(value):
            for part in mutations(value):
                yield field.name, replace(query, **{field.name: part[1]})
        for kind, odd in ODD.items():
            if type(value) is kind:
                for other in odd:
                    yield field.name, replace(query, **{field.name: other})


@pytest.mark.parametrize("query", [UPDATE, SendStatistics(UPDATE), Score(CENTROIDS), CLUSTERS, DRAW])
def test_one_odd_field_is_enough_to_be_refused(query):
    n_refused = 0
    for name, odd in mutations(query):
        if name in ANYTHING_GOES or (name == "tol_local" and odd.tol_local == 1e308):
            continue
        if name == "seed" and 0 <= odd.seed < 2**64:
            continue
        if name == "centroids" and isinstance(odd, DrawPoint) and odd.centroids.shape == (0, 3):
            continue
        if name == "update" and odd.update.tol_local == 1e308:
            continue
        with pytest.raises(WireError):
            check_query(odd, 3)
        n_refused += 1
    assert n_refused > 8
