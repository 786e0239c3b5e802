"""The fast kernel against the plain one: the same labels, the same bits, whatever was asked before."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkmeans.kernels import Rows, find_kernel
from fedkmeans.kernels.reference import lloyd

pytestmark = pytest.mark.slow

FAST, PLAIN = find_kernel("numba"), find_kernel("numpy")
DTYPES = [np.float64, np.float32, np.uint8, np.int64, np.bool_]
KINDS = ["normal", "blobs", "grid", "binary", "line", "mirrored", "duplicates", "constant", "one far"]
# Scale and offset of the data; the last one makes numbers that are not sums of powers of two.
PLACES = [(1.0, 0.0), (1.0, 1e6), (1.0, 1e9), (1e-30, 0.0), (1e100, 0.0), (0.1, 0.3)]
LAYOUTS = ["C", "F", "strided", "read-only"]

seeds = st.integers(0, 2**32 - 1)


@pytest.fixture(scope="module", autouse=True)
def _compiled():
    """Compile for every kind of data before anything is measured."""
    for dtype in DTYPES:
        X = np.arange(24 * 20).reshape(24, 20).astype(dtype)
        for max_local in (1, 3):
            ask(Rows(X, np.array([0, 10, 24])), X[:5].astype(float), Setting(max_local))
        FAST.assign(X, X[:5].astype(float))


@dataclass(frozen=True)
class Setting:
    max_local: int = 1
    tol_local: float = 0.0
    empty_clusters: str = "keep"


def ask(rows, centroids, setting, which=None, kernel=FAST, inertia=False, n_threads=1):
    which = np.arange(len(rows.starts) - 1) if which is None else which
    return kernel.local_steps(rows, which, centroids, inertia=inertia, n_threads=n_threads, **vars(setting))


def assert_same(found, expected, n_clients):
    """Bit for bit."""
    np.testing.assert_array_equal(found.counts, expected.counts)
    np.testing.assert_array_equal(found.last_counts, expected.last_counts)
    for place in range(n_clients):
        np.testing.assert_array_equal(found.centroids(place), expected.centroids(place))


def assert_same_inertia(found, expected, rows, centroids):
    X = rows.X.astype(np.float64)
    weight = max(len(X), 0.0 if rows.sample_weight is None else rows.sample_weight.sum())
    scale = max(lloyd.squared_distances(X, centroids).max(), lloyd.squared_distances(X, X).max())
    rounding = 1e-15 * X.shape[1] * max(np.abs(X).max(), np.abs(centroids).max())
    absolute = weight * (1e-9 * scale + rounding * np.sqrt(scale) + rounding**2)
    np.testing.assert_allclose(found.inertia, expected.inertia, rtol=1e-9, atol=absolute)
    np.testing.assert_allclose(found.received_inertia, expected.received_inertia, rtol=1e-9, atol=absolute)


@contextmanager
def constants(**values):
    """Change constants of the fast kernel, wherever in its modules they are."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            homes = [
                (module, spelled)
                for path, module in sys.modules.items()
                for spelled in (name, f"_{name}")
                if path.startswith("fedkmeans.kernels.") and spelled in vars(module)
            ]
            assert homes, f"{name} is not where it was"
            for module, spelled in homes:
                patch.setattr(module, spelled, value)
        yield


def follow_everything(rows):
    """Let all runs on these rows use the same memory, however far apart their centroids are."""
    for run in rows.cache.runs if rows.cache else ():
        run.near = np.inf


def make_rows(rng, n, m, kind):
    few = max(1, n // 4)
    return {
        "normal": lambda: rng.normal(size=(n, m)),
        "blobs": lambda: 2 * rng.normal(size=(4, m))[rng.integers(4, size=n)] + 0.3 * rng.normal(size=(n, m)),
        "grid": lambda: rng.integers(-2, 3, size=(n, m)).astype(float),
        "binary": lambda: rng.integers(0, 2, size=(n, m)).astype(float),
        "line": lambda: np.outer(rng.integers(-4, 5, size=n), np.eye(m)[0]).astype(float),
        "mirrored": lambda: rng.choice([-1.0, 1.0], size=(n, 1)) * rng.integers(1, 3, size=(n, m)),
        "duplicates": lambda: rng.normal(size=(few, m))[rng.integers(few, size=n)],
        "constant": lambda: np.full((n, m), rng.normal()),
        "one far": lambda: rng.normal(size=(n, m)) * np.where(np.arange(n) == n // 2, 50.0, 1.0)[:, None],
    }[kind]()


def cast(X, dtype):
    if np.dtype(dtype).kind == "f":
        return X.astype(dtype)
    X = np.round(2 * X)
    return (X - X.min() if dtype == np.uint8 else X).astype(dtype)


def lay_out(X, layout):
    if layout == "F":
        return np.asfortranarray(X)
    if layout == "strided":
        wide = np.zeros((2 * X.shape[0], 3 * X.shape[1]), dtype=X.dtype)
        wide[::2, ::3] = X
        return wide[::2, ::3]
    if layout == "read-only":
        X = X.copy()
        X.setflags(write=False)
    return X


def make_weight(rng, n, kind):
    return {
        "none": lambda: None,
        "few": lambda: rng.choice([0.1, 0.2, 0.3, 0.7], size=n),
        "wide": lambda: 10.0 ** rng.uniform(-4, 4, size=n),
    }[kind]()


def make_centroids(rng, X, k, scale, offset):
    """From rows or from anywhere; some twice, some far away, where nobody is."""
    n, m = X.shape
    if rng.random() < 0.6:
        centroids = X[rng.integers(n, size=k)].astype(np.float64)
    else:
        centroids = scale * rng.normal(size=(k, m)) + offset
    if rng.random() < 0.4:
        centroids += 0.1 * scale * rng.normal(size=(k, m))
    if rng.random() < 0.3:
        centroids[rng.integers(k)] = centroids[rng.integers(k)]
    if rng.random() < 0.3:
        # Far enough that all that follows counts as a small movement.
        centroids[rng.integers(k)] += 300 * scale
    return centroids


def move(rng, how, centroids, rows, scale, offset):
    if how == "nudge":
        return centroids + scale * 10.0 ** rng.integers(-9, 0) * rng.normal(size=centroids.shape)
    if how == "round":
        local = ask(rows, centroids, Setting(2), kernel=PLAIN)
        all_local = [local.centroids(place) for place in range(len(rows.starts) - 1)]
        return 0.5 * centroids + 0.5 * np.mean(all_local, axis=0)
    if how == "one":
        moved = centroids.copy()
        moved[rng.integers(len(moved))] = rows.X[rng.integers(len(rows.X))]
        return moved
    if how == "jump":
        return make_centroids(rng, rows.X, len(centroids), scale, offset)
    return centroids


def make_table(rng, columns, dtype, kind, place, layout, weights, many_rows=False):
    m = int(rng.choice(columns))
    sizes = rng.integers(1, (70 if many_rows else min(30, 2 * m)) + 1, size=rng.integers(1, 5))
    scale, offset = place
    if np.dtype(dtype).kind == "f":
        scale = min(scale, 1e30) if dtype == np.float32 else scale
        X = cast(scale * make_rows(rng, sizes.sum(), m, kind) + offset, dtype)
    else:
        scale, offset = 1.0, 0.0
        X = cast(make_rows(rng, sizes.sum(), m, kind), dtype)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    rows = Rows(lay_out(X, layout), starts, make_weight(rng, len(X), weights))
    return rows, scale, offset


def make_settings(rng, scale):
    tolerances = [0.0, 0.0, 1e-8, 0.1 * scale, 0.5 * scale, 2.0 * scale]
    return [
        Setting(
            int(rng.integers(1, 7)), float(rng.choice(tolerances)), str(rng.choice(["keep", "keep", "drop"]))
        )
        for _ in range(rng.integers(1, 3))
    ]


def walk(rng, rows, scale, offset, n_calls=8, relocate=False):
    """Ask along one or two paths of centroids, some clients or all, in one way or two."""
    n_clients = len(rows.starts) - 1
    k = int(rng.integers(1, 8) if rng.random() < 0.8 else rng.integers(8, 30))
    ways = make_settings(rng, scale)
    if relocate:
        ways.append(Setting(int(rng.integers(1, 7)), 0.0, "relocate"))
    paths = [make_centroids(rng, rows.X, k, scale, offset) for _ in range(rng.integers(1, 3))]
    together = rng.random() < 0.5
    for call in range(n_calls):
        path = rng.integers(len(paths))
        how = rng.choice(["stay", "nudge", "round", "one", "jump"], p=[0.1, 0.4, 0.25, 0.15, 0.1])
        if call:
            paths[path] = move(rng, how, paths[path], rows, scale, offset)
        some = rng.permutation(n_clients)[: rng.integers(1, n_clients + 1)]
        which = some if rng.random() < 0.4 else np.arange(n_clients)
        yield which, paths[path], ways[rng.integers(len(ways))]
        if together:
            follow_everything(rows)


def hold_against_plain(rng, rows, scale, offset, **options):
    for which, centroids, setting in walk(rng, rows, scale, offset, **options):
        inertia, n_threads = bool(rng.random() < 0.3), int(rng.integers(1, 3))
        if rng.random() < 0.3:  # scores follow, too, and must not disturb what is remembered
            near = centroids + rng.choice([0.0, 1e-3]) * scale * rng.normal(size=centroids.shape)
            scores = [kernel.inertia_each(rows, which, near, n_threads) for kernel in (PLAIN, FAST)]
            np.testing.assert_allclose(*scores, rtol=1e-9)
        expected = ask(rows, centroids, setting, which, PLAIN, inertia)
        found = ask(rows, centroids, setting, which, FAST, inertia, n_threads)
        assert_same(found, expected, len(which))
        if inertia:
            assert_same_inertia(found, expected, rows, centroids)
        assert_adds_up(rng, found, expected, len(which), centroids.shape)


def assert_adds_up(rng, found, expected, n_clients, shape):
    weights = rng.choice([0.0, 0.1, 1.0, 3.0], size=(n_clients, shape[0]))
    sums = [(np.full(shape, 0.1), np.full(shape, -0.3)) for _ in range(2)]
    expected.add_to(weights, *sums[0])
    found.add_to(weights, *sums[1])
    np.testing.assert_array_equal(sums[0], sums[1])


tables = {
    "dtype": st.sampled_from(DTYPES),
    "kind": st.sampled_from(KINDS),
    "place": st.sampled_from(PLACES),
    "layout": st.sampled_from(LAYOUTS),
    "weights": st.sampled_from(["none", "none", "few", "wide"]),
}


@given(seeds, st.fixed_dictionaries(tables), st.sampled_from([1, 2**20]))
@settings(max_examples=600)
def test_remembered_answers_are_the_plain_ones_bit_for_bit(seed, table, worth_threads):
    rng = np.random.default_rng(seed)
    # With the smaller one, clients are asked in threads. Or what happened three calls ago is forgotten.
    with constants(WORTH_THREADS=worth_threads, N_PAST=3 if seed % 2 else 64):
        hold_against_plain(rng, *make_table(rng, [17, 18, 25, 40, 70], **table))


@given(seeds, st.fixed_dictionaries(tables))
@settings(max_examples=600)
def test_few_columns_are_followed_as_well_as_many(seed, table):
    rng = np.random.default_rng(seed)
    with constants(FOLLOWED_COLUMNS=1, FEW_TERMS=0):
        hold_against_plain(rng, *make_table(rng, [1, 2, 3, 5, 8, 12, 16], **table))


@given(seeds, st.fixed_dictionaries(tables))
@settings(max_examples=200)
def test_scanned_answers_are_the_plain_ones_bit_for_bit(seed, table):
    rng = np.random.default_rng(seed)
    columns = [1, 2, 5, 16, 20, 70]
    with constants(FOLLOWED_ROWS=0):
        hold_against_plain(rng, *make_table(rng, columns, **table, many_rows=True), n_calls=3, relocate=True)


@given(seeds, st.sampled_from(["normal", "blobs", "grid", "line"]), st.sampled_from(["none", "few"]))
@settings(max_examples=60)
def test_rows_beyond_the_gram_matrix_are_followed_for_one_step(seed, kind, weights):
    rng = np.random.default_rng(seed)
    table = make_table(rng, [17, 20], np.float64, kind, PLACES[0], "C", weights, many_rows=True)
    hold_against_plain(rng, *table, n_calls=5)


@given(
    seeds,
    st.sampled_from([np.float64, np.float32]),
    st.lists(st.floats(-1, 1), min_size=2, max_size=6),
    st.floats(-1, 1),
    st.booleans(),
)
@settings(max_examples=300)
def test_centroids_may_be_at_one_spot_near_and_immensely_far_in_turn(seed, dtype, scales, size, with_gram):
    """What is kept in single precision suits the first centroids, and must be renewed for others."""
    rng = np.random.default_rng(seed)
    largest = 30 if dtype == np.float32 else 140
    X = (10.0 ** (largest * size) * rng.normal(size=(60, 20))).astype(dtype)
    X[rng.random(60) < 0.5] = X[0]  # nothing but zeros once they are shifted
    rows = Rows(X, np.array([0, 20, 60]))
    k = int(rng.integers(2, 5))
    setting = Setting(3 if with_gram else 1, 0.0, "keep")
    for scale in (None, *scales, 0.0):
        centroids = np.repeat(X[:1].astype(float), k, axis=0)
        if scale is not None:
            far = 10.0 ** (largest * scale) * rng.normal(size=(k, 20))
            centroids = np.where(rng.random((k, 1)) < 0.5, far, X[rng.choice(60, size=k)].astype(float))
        expected, found = (ask(rows, centroids, setting, kernel=kernel) for kernel in (PLAIN, FAST))
        assert_same(found, expected, 2)


def many_rows(rng, kind, dtype, place):
    n, m, k = int(rng.integers(40, 300)), int(rng.choice([1, 3, 17, 40])), int(rng.choice([1, 2, 5, 40]))
    scale, offset = place
    if dtype == np.float32:
        scale = min(scale, 1e30)
    if np.dtype(dtype).kind != "f":
        scale, offset = 1.0, 0.0
    X = cast(scale * make_rows(rng, n, m, kind) + offset, dtype)
    return X, make_centroids(rng, X, k, scale, offset)


@given(seeds, st.sampled_from(KINDS), st.sampled_from(DTYPES), st.sampled_from(PLACES), st.integers(1, 3))
@settings(max_examples=150)
def test_labels_are_those_of_the_formula(seed, kind, dtype, place, n_threads):
    X, centroids = many_rows(np.random.default_rng(seed), kind, dtype, place)
    expected = lloyd.squared_distances(X, centroids).argmin(axis=1)
    np.testing.assert_array_equal(FAST.assign(X, centroids), expected)
    with constants(LARGE=64):
        np.testing.assert_array_equal(FAST.assign(X, centroids, n_threads), expected)


@given(seeds, st.sampled_from(KINDS), st.sampled_from(DTYPES), st.sampled_from(PLACES), st.booleans())
@settings(max_examples=100)
def test_one_pass_gives_sums_and_inertia(seed, kind, dtype, place, weighted):
    rng = np.random.default_rng(seed)
    X, centroids = many_rows(rng, kind, dtype, place)
    weight = rng.choice([0.1, 0.2, 0.7], size=len(X)) if weighted else None
    sums, counts = PLAIN.lloyd_step(X, centroids, weight)
    inertia = PLAIN.inertia(X, centroids, weight)
    np.testing.assert_array_equal(FAST.lloyd_step(X, centroids, weight)[0], sums)
    np.testing.assert_array_equal(FAST.lloyd_step(X, centroids, weight)[1], counts)
    np.testing.assert_allclose(FAST.inertia(X, centroids, weight), inertia, rtol=1e-9)
    size = len(X) * np.abs(X.astype(np.float64)).max()
    with constants(LARGE=64):
        parts = [FAST.lloyd_step(X, centroids, weight, n_threads) for n_threads in (1, 2, 3)]
        for found_sums, found_counts in parts:
            np.testing.assert_array_equal(found_sums, parts[0][0])
            np.testing.assert_allclose(found_sums, sums, rtol=1e-12, atol=1e-13 * size)
            np.testing.assert_allclose(found_counts, counts, rtol=1e-12)
        np.testing.assert_allclose(FAST.inertia(X, centroids, weight, 2), inertia, rtol=1e-9)


@given(seeds, st.sampled_from(["grid", "binary", "line", "normal"]), st.sampled_from(["keep", "drop"]))
@settings(max_examples=100)
def test_large_clients_differ_by_rounding_only(seed, kind, empty_clusters):
    rng = np.random.default_rng(seed)
    X = make_rows(rng, 120, int(rng.choice([2, 9, 20])), kind)
    rows = Rows(X, np.array([0, 100, 105, 120]), make_weight(rng, len(X), rng.choice(["none", "few"])))
    if kind != "normal":
        rows.sample_weight = None  # so that sums are exact, and ties are ties, in any order
    centroids = make_centroids(rng, X, int(rng.integers(2, 9)), 1.0, 0.0)
    steps = 1 if kind != "normal" else int(rng.integers(1, 7))
    setting = Setting(steps, float(rng.choice([0.0, 0.5])), empty_clusters)
    expected = ask(rows, centroids, setting, kernel=PLAIN, inertia=True)
    with constants(LARGE=64, FOLLOWED_ROWS=0):
        for found in [ask(rows, centroids, setting, inertia=True, n_threads=n) for n in (1, 2, 3)]:
            np.testing.assert_allclose(found.counts, expected.counts, rtol=1e-12)
            np.testing.assert_allclose(found.last_counts, expected.last_counts, rtol=1e-12)
            for place in range(3):
                np.testing.assert_allclose(
                    found.centroids(place),
                    expected.centroids(place),
                    rtol=0,
                    atol=0 if kind != "normal" else 1e-12,
                )
            assert_same_inertia(found, expected, rows, centroids)


def lines_walked(n_walks):
    """Lines of the compiled functions that the walks of these tests pass, as far as Python can see them.

    Only with NUMBA_DISABLE_JIT=1, in a process of its own.
    """
    from fedkmeans.kernels.numba import jit

    modules = [import_module(f"{jit.__name__}.{found.name}") for found in iter_modules(jit.__path__)]
    codes = {
        function.__code__: {line for _, _, line in function.__code__.co_lines() if line}
        for module in modules
        for function in vars(module).values()
        if hasattr(function, "__code__") and function.__module__ == module.__name__
    }
    entered = set()

    def trace(frame, event, argument):
        if frame.f_code not in codes:
            return None
        entered.add(frame.f_code)

        def note(frame, event, argument):
            codes[frame.f_code].discard(frame.f_lineno)
            return note

        return note(frame, event, argument)

    columns = {"FOLLOWED_COLUMNS": 1, "FEW_TERMS": 0}
    for seed in range(n_walks):
        rng = np.random.default_rng(seed)
        kind = str(rng.choice(["blobs", "grid", "normal"]))
        weights = str(rng.choice(["none", "few"]))
        dtype = np.float32 if seed % 5 == 2 else np.float64
        rows, scale, offset = make_table(rng, [3, 5, 8], dtype, kind, PLACES[0], "C", weights)
        if seed % 10 == 1:
            rows.X[0] *= 1e20
        with constants(**columns if seed % 4 else {"FOLLOWED_ROWS": 0, "MANY_COLUMNS": 5}):
            for which, centroids, setting in walk(rng, rows, scale, offset):
                sys.settrace(trace)
                try:
                    ask(rows, centroids, setting, which, inertia=True)
                    FAST.assign(rows.X, centroids)
                    FAST.inertia_each(rows, which, centroids + 0.1 * rng.normal(size=centroids.shape))
                finally:
                    sys.settrace(None)
    return {code.co_name: sorted(lines) for code, lines in codes.items() if code in entered}


WALKED = {
    "score_clients", "scan_clients", "scan", "add_rows", "add_long_rows", "nearest_by_definition",
    "nearest_by_product", "two_lowest", "decide", "exact_square", "add_weighted_rows", "follow_labels",
    "relax", "tighten", "measure", "follow_step", "renew_means", "follow_steps", "answer_stands",
    "gram_matrix", "gram_error", "sum_gram", "move_row", "gram_steps", "first_movement_is_small",
    "two_lowest_means", "consider_received", "decide_by_means", "find_local", "mean_of", "means_move",
    "inertia_of_clients", "coarsen", "scan_client", "drop_empty", "move_to_means", "start_steps",
    "choose_labels", "freeze_empty", "change_labels", "surely_moves", "sum_first", "last_labels",
    "scan_dense", "copy_rows", "coarse_distance", "copy_centroids", "keep_centroids", "settle",
    "new_dense_scratch", "new_workspace", "most_rows", "focus", "movements",
}  # fmt: skip


def test_the_walks_pass_every_line():
    script = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        "from tests.kernels.test_kernel_properties import lines_walked; print(lines_walked(240))"
    )
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    missed = eval(result.stdout)  # what the process printed is ours
    assert set(missed) >= WALKED, WALKED - set(missed)
    assert {name: lines for name, lines in missed.items() if name in WALKED and lines} == {}
