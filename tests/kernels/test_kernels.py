"""Kernels in runs: which one is chosen, that both give the same run, and what the fast one remembers."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
from dataclasses import fields, is_dataclass
from pathlib import Path

import numpy as np
import pytest

from fedkmeans import FKM, FederatedKMeans, InProcess, Site
from fedkmeans.errors import ParameterError
from fedkmeans.kernels import Rows, choose_kernel, find_kernel
from fedkmeans.kernels.reference import lloyd
from fedkmeans.kernels.weighting import WEIGHTINGS
from fedkmeans.protocol import messages
from fedkmeans.protocol.exchange import add_up

pytestmark = pytest.mark.slow

FAST, PLAIN = find_kernel("numba"), find_kernel("numpy")


def blobs(m, n_clients=12, n=360, seed=3, dtype=np.float64):
    rng = np.random.default_rng(seed)
    X = 3 * rng.normal(size=(5, m))[rng.integers(5, size=n)] + rng.normal(size=(n, m))
    clients = np.sort(np.concatenate([np.arange(n_clients), rng.integers(n_clients, size=n - n_clients)]))
    return X.astype(dtype), [f"c{client:03}" for client in clients]


def one_client(X, **more):
    return Rows(np.asarray(X), np.array([0, len(X)]), **more)


def assert_same_steps(rows, centroids, **setting):
    setting = {"max_local": 1, "tol_local": 0.0, "empty_clusters": "keep", **setting}
    which = np.arange(len(rows.starts) - 1)
    found, expected = (kernel.local_steps(rows, which, centroids, **setting) for kernel in (FAST, PLAIN))
    np.testing.assert_array_equal(found.counts, expected.counts)
    np.testing.assert_array_equal(found.last_counts, expected.last_counts)
    for place in which:
        np.testing.assert_array_equal(found.centroids(place), expected.centroids(place))


def in_first_columns(values, m=40):
    """Numbers in the first columns of many, so that the kernel goes the way of many columns."""
    values = np.asarray(values, dtype=np.float64)
    values = values[:, None] if values.ndim == 1 else values
    return np.pad(values, ((0, 0), (0, m - values.shape[1])))


# --- single steps ------------------------------------------------------------------------------


@pytest.mark.parametrize(("k", "m"), [(2, 17), (3, 21), (2, 32), (2, 33), (1, 40), (1, 70)])
@pytest.mark.parametrize("max_local", [1, 3])
def test_few_clusters_of_many_columns(k, m, max_local):
    X = np.random.default_rng(0).normal(size=(30, m))
    rows = one_client(X)
    for step in range(3):
        assert_same_steps(rows, X[:k] + 0.01 * step, max_local=max_local)


def test_a_first_step_that_was_small_may_be_large_the_next_time():
    rows = one_client(in_first_columns([0, 0, 5, 8, 8, 8, 8]))
    # The same first labels; the mean 5/3 of the first three is 0.53, then 0.63 away.
    for received in (2.2, 2.3, 2.2, 2.3):
        assert_same_steps(rows, in_first_columns([received, 8]), max_local=5, tol_local=0.6)
    assert rows.cache.runs[0].with_gram


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("empty_clusters", ["keep", "drop"])
def test_a_tolerance_about_as_large_as_the_movement(empty_clusters, weighted):
    # A few labels change in a step, and the means move by more or by less than the tolerance.
    went_on = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(60, 30)) + 3 * rng.integers(2, size=(60, 1)) + 1e3 * (seed % 3)
        weight = rng.integers(1, 9, size=60) / 4 if weighted else None
        setting = {"max_local": 6, "tol_local": rng.uniform(0.1, 3), "empty_clusters": empty_clusters}
        rows, which = one_client(X, sample_weight=weight), np.array([0])
        assert_same_steps(rows, X[:4], **setting)
        stopped, free = (
            PLAIN.local_steps(rows, which, X[:4], **{**setting, "tol_local": tol}).centroids(0)
            for tol in (setting["tol_local"], 0.0)
        )
        went_on.append(np.array_equal(stopped, free))
    assert 5 < sum(went_on) < 55


def test_a_cluster_that_empties_and_refills_gets_its_new_mean():
    X = [[9, 10], [4, 0], [3, 0], [7, 6], [0, 7], [10, 8], [5, 9], [4, 3], [8, 8], [3, 8], [7, 8]]
    rows = one_client(in_first_columns(X))
    far = [1e3, 1e3]  # against which the next movement is a small one
    before = in_first_columns([[7, 6], [1.5, 7.5], [3.5, 0], [7.8, 8.6], [4, 3], far])
    # The last cluster but one has two rows, then none, then the one it had the last time.
    received = in_first_columns([[9, 5], [6, 4], [6, 0], [8, 8], [1, 2], far])
    for centroids in (before, received):
        assert_same_steps(rows, centroids, max_local=3)
    assert len(rows.cache.runs) == 1


def test_a_cluster_without_rows_may_win_one_in_the_middle_of_the_steps():
    # The first row is at its centroid, then 4 away, then at it again; the third cluster is 4.5 or 3.5 away.
    rows = one_client(in_first_columns([0, 6, 6, 7, 7]))
    for away in (4.5, 3.5, 4.5):
        assert_same_steps(rows, in_first_columns([[0, 0], [13, 0], [0, away]]), max_local=4)
    assert len(rows.cache.runs) == 1


@pytest.mark.parametrize("scale", [1e-20, 1e-22, 1e-25, 1e-40])
def test_differences_whose_squares_are_lost_in_single_precision(scale):
    # Most rows are far away, so that the few that lie close together are looked at one by one.
    for seed in range(5):
        rng = np.random.default_rng(seed)
        ends = np.zeros((2, 40))
        ends[:, 0] = 1, -1
        rows = one_client(np.vstack([scale * rng.normal(size=(20, 40)), np.repeat(ends, 200, axis=0)]))
        for _ in range(6):
            near = scale * rng.normal(size=(3, 40))
            assert_same_steps(rows, np.vstack([ends, near, -near]))


@pytest.mark.parametrize(("n", "m", "dtype"), [(60, 2500, float), (1300, 20, float), (60, 1025, np.uint8)])
def test_rows_as_bytes_where_these_are_many_or_outside_their_range(n, m, dtype):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 256, size=(n, m)) * rng.integers(1, 3, size=(n, 1))
    X[1::7] = rng.choice([0, 255], size=m)
    if dtype is float:
        X = X + np.where(np.arange(n) % 5 == 1, 1e6, 0.0)[:, None] * rng.random((n, m))
    rows = one_client(X.astype(dtype))
    centroids = rows.X[rng.choice(n, size=6, replace=False)].astype(float)
    for _ in range(6):
        assert_same_steps(rows, centroids)
        centroids = centroids + 0.02 * X.std() * rng.normal(size=centroids.shape)
    assert rows.cache.runs


def test_an_interrupt_after_the_first_labels_leaves_nothing_wrong(monkeypatch):
    from fedkmeans.kernels.numba.jit import follow

    rng = np.random.default_rng(0)
    rows = one_client(5 + rng.normal(size=(200, 40)))
    assert_same_steps(rows, rows.X[:6])
    far = np.zeros((6, 40))
    far[4:] = [[1e10], [-1e10]]
    with monkeypatch.context() as patch:

        def interrupt(*arguments):
            raise KeyboardInterrupt

        patch.setattr(follow, "follow_step", interrupt)
        with pytest.raises(KeyboardInterrupt):
            assert_same_steps(rows, far)
    for _ in range(3):
        assert_same_steps(rows, rows.X[:6] + 0.01 * rng.normal(size=(6, 40)))


@pytest.mark.parametrize("far", [1e20, 1e46, 1e140])
@pytest.mark.parametrize("max_local", [1, 3])
def test_centroids_beyond_single_precision(far, max_local):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 20)).astype(np.float32)
    rows = one_client(X)
    for _ in range(4):
        centroids = np.concatenate([X[:14], np.full((1, 20), far), np.full((1, 20), -far)])
        assert_same_steps(rows, centroids + 0.2 * rng.normal(size=centroids.shape), max_local=max_local)


def test_one_row_may_weigh_more_than_all_others():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(20, 17))
        X[0] *= 0.1
        rows = one_client(X, sample_weight=np.where(np.arange(20) == 0, 1e16, 1.0))
        centroids = np.concatenate([rng.normal(size=(3, 17)), np.full((1, 17), 100.0)])
        for _ in range(6):
            received = centroids.copy()
            received[rng.integers(3)] *= 0.1
            assert_same_steps(rows, received, max_local=4)


def test_clients_not_asked_for_a_hundred_rounds_are_not_mistaken():
    X, _ = blobs(20)
    rows = Rows(X, np.array([0, 30, 60]))
    rng = np.random.default_rng(0)
    centroids = X[:6] + 0
    for step in range(150):
        centroids += 0.02 * rng.normal(size=centroids.shape)
        which = np.array([0]) if step % 75 else np.array([1, 0])
        setting = {"max_local": 1, "tol_local": 0, "empty_clusters": "keep"}
        found, expected = (kernel.local_steps(rows, which, centroids, **setting) for kernel in (FAST, PLAIN))
        for place in range(len(which)):
            np.testing.assert_array_equal(found.centroids(place), expected.centroids(place))


def test_no_rows_have_no_labels():
    assert FAST.assign(np.empty((0, 20)), np.ones((3, 20))).shape == (0,)


def test_a_file_of_numbers_is_read_in_place(tmp_path):
    X = np.random.default_rng(0).normal(size=(40, 18)).astype(np.float32)
    X.tofile(tmp_path / "rows")
    mapped = np.memmap(tmp_path / "rows", dtype=np.float32, mode="r", shape=X.shape)
    assert_same_steps(Rows(mapped, np.array([0, 15, 40])), X[:4].astype(float), max_local=3)
    np.testing.assert_array_equal(FAST.assign(mapped, X[:4]), PLAIN.assign(X, X[:4].astype(float)))


@pytest.mark.parametrize("dtype", [">f8", "<f4", np.float16, np.longdouble])
def test_other_floats_are_read_as_numpy_reads_them(dtype):
    X = np.random.default_rng(0).normal(size=(30, 18)).astype(dtype)
    assert_same_steps(one_client(X), X[:4].astype(float), max_local=2)


def test_sums_do_not_depend_on_threads(monkeypatch):
    X, _ = blobs(20)
    rows = Rows(X, np.arange(0, 361, 30))
    rng = np.random.default_rng(0)
    weights = rng.random((12, 7))
    setting = {"max_local": 2, "tol_local": 0.0, "empty_clusters": "keep"}
    sums = []
    for kernel, n_threads, large in [(PLAIN, 1, None), (FAST, 1, None), (FAST, 2, 1), (FAST, 3, 1)]:
        outcome = kernel.local_steps(rows, np.arange(12), X[:7], n_threads=n_threads, **setting)
        if large:
            monkeypatch.setattr(sys.modules[type(outcome).__module__], "WORTH_THREADS", large)
        total = np.zeros((7, 20)), np.zeros((7, 20))
        outcome.add_to(weights, *total)
        sums.append(total)
    for total in sums[1:]:
        np.testing.assert_array_equal(total, sums[0])


# --- what is remembered ------------------------------------------------------------------------


def n_bytes(thing, seen=None):
    """Bytes of all arrays that hang on something, each counted once."""
    seen = set() if seen is None else seen
    if thing is None or isinstance(thing, str | int | float) or id(thing) in seen:
        return 0
    seen.add(id(thing))
    if isinstance(thing, np.ndarray):
        return thing.nbytes if thing.base is None else 0
    if isinstance(thing, dict):
        thing = list(thing.values())
    if is_dataclass(thing):
        thing = [getattr(thing, field.name) for field in fields(thing)]
    if not isinstance(thing, list | tuple):
        thing = list(getattr(thing, "__dict__", {}).values())
    return sum(n_bytes(part, seen) for part in thing)


def remembered(rows):
    return n_bytes([rows.cache.runs, rows.cache.grams])


@pytest.mark.parametrize("ways", [[(4, 1)], [(4, 3)], [(30, 1), (2, 1)], [(4, 1), (9, 3), (2, 2), (30, 1)]])
def test_no_more_is_remembered_than_allowed(monkeypatch, ways):
    from fedkmeans.kernels.numba import kernel_cache

    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 60))
    rows = Rows(X, np.arange(0, 401, 20))
    for least in (0, 2**20):
        monkeypatch.setattr(kernel_cache, "LEAST_MEMORY", least)
        rows.cache = None
        for k, max_local in ways * 5:
            for _ in range(6):  # runs that are far from one another
                assert_same_steps(rows, 10 * rng.normal(size=(k, 60)), max_local=max_local)
                # Twice the rows in double precision; labels and a few centroids come on top.
                assert remembered(rows) <= 1.1 * max(least, 2 * X.nbytes) + 64 * 8 * k * 60


def test_nothing_is_remembered_of_few_columns_or_large_clients():
    X, _ = blobs(8)
    rows = one_client(X)
    assert_same_steps(rows, X[:5], max_local=2)
    assert rows.cache is None or not rows.cache.runs
    X, _ = blobs(20)
    rows = one_client(X)  # more rows than twice the columns
    assert_same_steps(rows, X[:5], max_local=2)
    assert rows.cache is None or not rows.cache.runs
    assert_same_steps(rows, X[:5], max_local=1)
    assert rows.cache.runs


def cache_of(site):
    return site.table.cache


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda thing: pickle.loads(pickle.dumps(thing))])
def test_copies_forget_and_give_the_same_run(copied):
    X, clients = blobs(20)
    federation = InProcess.from_arrays(X, clients, kernel="numba")
    model = FederatedKMeans(5, random_state=0, max_local=2).fit_federation(federation)
    site = federation.sites["c003"]
    assert cache_of(site) is not None
    twin = copied(federation)
    assert all(cache_of(site) is None for site in twin.sites.values())
    assert len({id(site.table) for site in twin.sites.values()}) == 1
    again = FederatedKMeans(5, random_state=0, max_local=2).fit_federation(twin)
    np.testing.assert_array_equal(again.cluster_centers_, model.cluster_centers_)
    single = copied(site)
    assert cache_of(single) is None
    query = messages.LocalUpdate(model.cluster_centers_, 2, 0.0, "dynamic", "keep")
    np.testing.assert_array_equal(single.answer(query).centroids, site.answer(query).centroids)


# --- totals ------------------------------------------------------------------------------------


def assert_same_record(found, expected):
    assert type(found) is type(expected)
    if is_dataclass(found):
        for field in fields(found):
            assert_same_record(getattr(found, field.name), getattr(expected, field.name))
    elif isinstance(found, tuple | list):
        for a, b in zip(found, expected, strict=True):
            assert_same_record(a, b)
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kernel", ["numba", "numpy"])
@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("m", [3, 20])
def test_totals_are_the_replies_added_up(kernel, weighting, m):
    X, clients = blobs(m)
    weight = np.random.default_rng(0).choice([0.1, 0.3, 1.0], size=len(X))
    chosen = ("c005", "c001", "c011", "c002")
    updates = [
        messages.LocalUpdate(X[:k] + 0.1 * k, max_local, 1e-8, weighting, empty)
        for k, max_local, empty in [(4, 1, "keep"), (9, 3, "drop"), (4, 2, "relocate")]
    ]
    for n_jobs in (1, 2):
        federation = InProcess.from_arrays(X, clients, weight, kernel=kernel, n_jobs=n_jobs)
        for query in (*updates, messages.Bundle(tuple(updates)), messages.Score(X[:4])):
            for asked in (federation.clients, chosen, ("c004",)):
                expected = add_up(federation.ask(query, asked))
                assert_same_record(federation.total(query, asked), expected)


def test_totals_in_portions_are_the_same(monkeypatch):
    X, clients = blobs(5)
    federation = InProcess.from_arrays(X, clients, kernel="numba")
    query = messages.LocalUpdate(X[:4], 2, 0.0, "dynamic", "keep")
    expected = federation.total(query, federation.clients)
    monkeypatch.setattr(sys.modules[type(FAST).__module__], "_HELD", 3 * 4 * 5)
    assert_same_record(federation.total(query, federation.clients), expected)


def test_a_site_of_another_kind_is_asked_itself():
    asked = []

    class Loud(Site):
        def answer(self, query):
            asked.append(type(query))
            return super().answer(query)

    X, clients = blobs(20)
    ids = np.array(clients)
    sites = [
        (Loud if name == "c002" else Site)(name, X[ids == name], kernel="numba")
        for name in sorted(set(clients))
    ]
    neighbours = InProcess.from_arrays(X, clients, kernel="numba")
    query = messages.LocalUpdate(X[:5], 2, 0.0, "dynamic", "keep")
    for federation in (InProcess(sites), InProcess(sites, n_jobs=2)):
        asked.clear()
        found = federation.total(query, federation.clients)
        assert_same_record(found, neighbours.total(query, federation.clients))
        federation.ask(messages.Bundle((query, query)), federation.clients)
        assert asked == [messages.LocalUpdate, messages.Bundle]


# --- whole runs --------------------------------------------------------------------------------


def runs():
    """Ways to fit, each with what makes it special."""
    for memory in (None, "server", "client", 0.9):
        yield FederatedKMeans(5, memory=memory, max_local=3)
        yield FederatedKMeans(5, memory=memory, clients_per_round=4, max_rounds=20)
    for weighting in WEIGHTINGS:
        yield FederatedKMeans(5, memory=None, weighting=weighting, max_local=2, n_init=2)
    yield FederatedKMeans(5, memory=None, max_local=4, tol_local=0.5, momentum=0.5, max_rounds=15)
    yield FederatedKMeans(5, empty_clusters="relocate", memory=None)
    yield FederatedKMeans(40, max_local=2, max_rounds=20)
    yield FederatedKMeans.paper(5, clients_per_round=4, max_rounds=30, patience=None)
    yield FederatedKMeans.paper(5, max_rounds=30)
    yield FKM(5, max_rounds=15)
    yield FKM(5, clients_per_round=3, max_rounds=15)


@pytest.mark.parametrize("m", [2, 20, 64])
@pytest.mark.parametrize(
    "estimator", list(runs()), ids=lambda estimator: str(estimator).replace("\n", "")[:90]
)
def test_a_run_is_the_same_by_either_kernel(m, estimator):
    X, clients = blobs(m)
    fits = []
    for kernel, n_jobs in [("numpy", 1), ("numba", 1), ("numba", 2)]:
        model = copy.deepcopy(estimator).set_params(kernel=kernel, n_jobs=n_jobs, random_state=0)
        model.fit(X, clients=clients)
        assert model.history_["kernel"].tolist()[-1] == kernel
        fits.append(model)
    # Inertia differs by rounding: by_compactness looks at it, and of two starts that end at the same place
    # the better one is better by rounding.
    inexact = getattr(estimator, "weighting", "") == "by_compactness"
    centres = [model.cluster_centers_ for model in fits]
    if estimator.n_init > 1:
        centres = [np.array(sorted(map(tuple, found))) for found in centres]
    for model, found in zip(fits[1:], centres[1:], strict=True):
        np.testing.assert_allclose(found, centres[0], rtol=0, atol=1e-9 if inexact else 0)
        assert inexact or estimator.n_init > 1 or model.n_iter_ == fits[0].n_iter_
        assert estimator.n_init > 1 or np.array_equal(model.labels_, fits[0].labels_)
    np.testing.assert_array_equal(fits[1].cluster_centers_, fits[2].cluster_centers_)


def test_weighted_single_precision_runs_are_the_same_by_either_kernel():
    X, clients = blobs(24, dtype=np.float32)
    weight = np.random.default_rng(0).choice([0.0, 0.1, 0.7], size=len(X))
    fits = [
        FederatedKMeans(6, max_local=3, random_state=1, kernel=kernel).fit(
            X, clients=clients, sample_weight=weight
        )
        for kernel in ("numpy", "numba")
    ]
    np.testing.assert_array_equal(fits[0].cluster_centers_, fits[1].cluster_centers_)


def test_a_second_fit_on_the_same_federation_is_like_the_first():
    X, clients = blobs(20)
    federation = InProcess.from_arrays(X, clients, kernel="numba")
    settings = [{"max_local": 1}, {"max_local": 3}, {"max_local": 3, "n_clusters": 7}, {"max_local": 1}]
    for setting in settings * 2:
        setting = {"n_clusters": 5, **setting}
        found = FederatedKMeans(**setting, random_state=0).fit_federation(federation)
        alone = FederatedKMeans(**setting, random_state=0, kernel="numba").fit(X, clients=clients)
        np.testing.assert_array_equal(found.cluster_centers_, alone.cluster_centers_)


# --- which kernel ------------------------------------------------------------------------------


def test_little_data_is_left_to_numpy():
    X, clients = blobs(4, n_clients=4, n=80)
    assert (
        FederatedKMeans(3, random_state=0).fit(X, clients=clients).history_["kernel"].tolist()[-1] == "numpy"
    )


def test_many_clients_are_given_to_numba():
    X, clients = blobs(4, n_clients=100, n=300)
    assert (
        FederatedKMeans(3, random_state=0).fit(X, clients=clients).history_["kernel"].tolist()[-1] == "numba"
    )


def test_sites_made_one_by_one_choose_together():
    X, clients = blobs(4, n_clients=100, n=300)
    ids = np.array(clients)
    sites = [Site(name, X[ids == name]) for name in sorted(set(clients))]
    assert {site.table.kernel_name for site in sites} == {"numpy"}
    joined = InProcess(sites)
    assert {site.table.kernel_name for site in sites} == {"numba"}
    model = FederatedKMeans(3, random_state=0).fit_federation(joined)
    assert model.history_["kernel"].tolist()[-1] == "numba"
    together = FederatedKMeans(3, random_state=0).fit(X, clients=clients)
    np.testing.assert_array_equal(model.cluster_centers_, together.cluster_centers_)


def test_a_site_that_insists_keeps_its_kernel():
    X, clients = blobs(4, n_clients=100, n=300)
    ids = np.array(clients)
    kernels = {"c000": "numpy"}
    sites = [Site(name, X[ids == name], kernel=kernels.get(name, "auto")) for name in sorted(set(clients))]
    model = FederatedKMeans(3, random_state=0).fit_federation(InProcess(sites))
    assert model.history_["kernel"].tolist()[-1] == "numba+numpy"


def test_an_unknown_kernel_is_refused():
    X, clients = blobs(4)
    with pytest.raises(ParameterError, match="kernel"):
        FederatedKMeans(3, kernel="fortran").fit(X, clients=clients)
    with pytest.raises(ParameterError, match="kernel"):
        find_kernel("auto")
    assert choose_kernel("numpy", 10**6, 10**9) == "numpy"


# --- processes and threads ---------------------------------------------------------------------


def run_python(script, **environment):
    result = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize(
    "script",
    [
        "import sys; sys.argv[1:] = ['--help']\n"
        "from fedkmeans.cli import main\ntry: main()\nexcept SystemExit: pass\n",
        "import numpy as np, fedkmeans as f\n"
        "X = np.random.default_rng(0).normal(size=(80, 4))\n"
        "f.FederatedKMeans(3, random_state=0).fit(X, clients=np.repeat(range(4), 20)).predict(X)\n",
        "import fedkmeans as f\nf.FKM, f.KFed, f.InProcess, f.Site\n",
    ],
)
def test_numba_is_not_loaded_for_nothing(script):
    assert run_python(script + "import sys\nprint('numba' in sys.modules)").split()[-1] == "False"


def test_two_fits_at_the_same_time_do_not_disturb_each_other():
    X, clients = blobs(20)
    federation = InProcess.from_arrays(X, clients, kernel="numba", n_jobs=2)
    ways = [
        {"max_local": 1},
        {"max_local": 3},
        {"max_local": 3, "random_state": 5},
        {"memory": None, "max_local": 2},
    ]
    ways = [{"random_state": 0, **way} for way in ways]
    expected = [
        FederatedKMeans(5, kernel="numpy", **way).fit(X, clients=clients).cluster_centers_ for way in ways
    ]
    found = {}

    def fit(place):
        for _ in range(3):
            found[place] = FederatedKMeans(5, **ways[place]).fit_federation(federation).cluster_centers_

    threads = [threading.Thread(target=fit, args=(place,), daemon=True) for place in range(len(ways))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(found) == list(range(len(ways)))
    for place, centroids in enumerate(expected):
        np.testing.assert_array_equal(found[place], centroids)


OVERLAPPING = """
import os, threading, time
import numpy as np
from fedkmeans import InProcess
from fedkmeans.kernels.numba import local_steps
from fedkmeans.protocol import messages
assert local_steps.WORTH_THREADS
local_steps.WORTH_THREADS = 1  # so that small clients are asked in threads
X = np.random.default_rng(0).normal(size=(240, 20))
names = np.repeat([f"c{client}" for client in range(8)], 30)
first = list(InProcess.from_arrays(X[:120], names[:120], kernel="numba").sites.values())
second = list(InProcess.from_arrays(X[120:], names[120:], kernel="numba").sites.values())
federations = [InProcess(sites, n_jobs=2) for sites in (first, second, first + second, first + second)]
query = messages.LocalUpdate(X[:5], 3, 0.0, "dynamic", "keep")
def ask(federation):
    for _ in range(100):
        federation.total(query, federation.clients)
threads = [threading.Thread(target=ask, args=(one,), daemon=True) for one in federations]
for thread in threads:
    thread.start()
until = time.monotonic() + 15
for thread in threads:
    thread.join(max(0, until - time.monotonic()))
print(sum(thread.is_alive() for thread in threads), flush=True)
os._exit(0)
"""


def test_fits_on_overlapping_federations_do_not_wait_for_each_other_for_ever():
    assert run_python(OVERLAPPING).split() == ["0"]


def fit_in_child(X, clients, answers):
    model = FederatedKMeans(5, random_state=0, kernel="numba", n_jobs=2, max_local=2).fit(X, clients=clients)
    answers.put(model.cluster_centers_)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
def test_a_fork_after_a_fit_in_threads_works():
    X, clients = blobs(64)
    model = FederatedKMeans(5, random_state=0, kernel="numba", n_jobs=2, max_local=2).fit(X, clients=clients)
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=fit_in_child, args=(X, clients, answers), daemon=True)
    child.start()
    found = answers.get(timeout=60)
    child.join(10)
    np.testing.assert_array_equal(found, model.cluster_centers_)


MEMORY = """
import numpy as np
from fedkmeans.kernels import Rows, find_kernel
def peak():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024
kernel = find_kernel("numba")
warm = np.ones((40, 4), dtype=np.float32)
setting = dict(max_local=2, tol_local=0, empty_clusters="keep")
kernel.local_steps(Rows(warm, np.array([0, 40])), np.array([0]), np.ones((32, 4)), **setting)
kernel.lloyd_step(warm, np.ones((32, 4)), n_threads=2)
X = np.random.default_rng(0).random((1_500_000, 4), dtype=np.float32)
centroids = X[:32].astype(float)
before = peak()
kernel.lloyd_step(X, centroids, n_threads=2)
kernel.inertia(X, centroids, n_threads=2)
kernel.local_steps(Rows(X, np.array([0, len(X)])), np.array([0]), centroids, n_threads=2, **setting)
print(peak() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc/self/status")
def test_a_large_client_takes_little_memory():
    extra = int(run_python(MEMORY))
    assert extra < 0.1 * 1_500_000 * 32 * 4


def test_the_plain_kernel_is_the_plain_version():
    X, _ = blobs(20)
    np.testing.assert_array_equal(PLAIN.assign(X, X[:4]), lloyd.assign(X, X[:4]))
    assert {FAST.name, PLAIN.name} == {"numba", "numpy"}
