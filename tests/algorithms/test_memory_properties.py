"""Totals with memory: both forms are equal, never corrupted, and end at the pooled total."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedkmeans import InProcess
from fedkmeans.algorithms.fit import find_memory
from fedkmeans.algorithms.state import State
from fedkmeans.algorithms.wf_kmeans import LocalWork
from fedkmeans.client.delta_state import DeltaStates
from fedkmeans.kernels.reference.lloyd import assign, cluster_sums
from fedkmeans.protocol.exchange import run
from fedkmeans.protocol.messages import SendStatistics
from fedkmeans.protocol.statistics import ClusterStatistics, RunningTotal, StackedStatistics, two_sum
from tests.lossy import Lossy
from tests.strategies import federations

pytestmark = pytest.mark.slow

ONE_STEP = LocalWork(max_local=1)


def next_state(state, found):
    return State(found.d, state.centroids, state.round + 1, memory=found.memory)


def play(federation, start, schedule, memory, work=ONE_STEP):
    """Run rounds in which the clients of `schedule` are asked; yield (centroids asked about, Target)."""
    find_target = find_memory(memory, work)
    state = State.start(start)
    for chosen in schedule:
        found = run(federation, find_target(state, federation.clients, chosen))
        yield state.centroids, found
        state = next_state(state, found)


def random_schedule(clients, n_rounds, rng):
    """Random subsets of at least one client."""
    sizes = rng.integers(1, len(clients) + 1, size=n_rounds)
    return [tuple(sorted(rng.choice(clients, size=size, replace=False))) for size in sizes]


def some_lost(chosen, round_, rng):
    """Choose lost replies: many, but all of them only in every third round, or the run would end."""
    lost = tuple(name for name in chosen if rng.random() < 0.4)
    return lost if len(lost) < len(chosen) or round_ % 3 == 0 else lost[1:]


def statistics_of(federation, client, centroids, work=ONE_STEP):
    return federation.sites[client].answer(SendStatistics(work.query(centroids)))


def assert_equal_statistics(one, two, scale, rtol):
    """Compare sums relative to the size of the summands, not of the sum, which may be small."""
    np.testing.assert_allclose(one.weighted_sum, two.weighted_sum, rtol=0, atol=rtol * scale)
    np.testing.assert_allclose(one.weight, two.weight, rtol=0, atol=rtol * scale)
    np.testing.assert_array_equal(one.holders, two.holders)
    assert one.n_samples == pytest.approx(two.n_samples, abs=rtol * scale)
    assert one.inertia == pytest.approx(two.inertia, abs=rtol * scale**2)


def total_of(many, shape):
    total = ClusterStatistics.nothing(*shape)
    for statistics in many:
        total = total + statistics
    return total


def scale_of(X, start):
    return len(X) * max(1.0, np.abs(X).max(), np.abs(start).max())


# Finite numbers of very different sizes, like sums of rows far from the origin.
numbers = st.builds(lambda a, e: a * 2.0**e, st.floats(-1, 1), st.integers(-60, 60))


@given(numbers, numbers)
def test_two_sum_is_exact(a, b):
    total, rest = two_sum(a, b)
    assert total == a + b
    assert math.fsum([a, b, -total, -rest]) == 0.0


def random_statistics(rng, k=2, m=3):
    size = 10.0 ** rng.integers(-8, 9)
    return ClusterStatistics(
        rng.normal(size=(k, m)) * size, rng.random(k) * size, rng.integers(2, size=k) * 1.0, size, 3.0
    )


@given(st.integers(0, 2**32 - 1))
def test_a_running_total_is_the_exact_sum_of_what_is_in_it(seed):
    """Add statistics of very different sizes and subtract most of them again."""
    rng = np.random.default_rng(seed)
    many = [random_statistics(rng) for _ in range(12)]
    total = RunningTotal.nothing(2, 3)
    for statistics in many:
        total = total.plus(statistics)
    for statistics in many[:-1]:
        total = total.plus(-statistics)
    largest = max(np.abs(statistics.weighted_sum).max() for statistics in many)
    left = total.high - many[-1]
    assert np.abs(left.weighted_sum).max() <= 1e-28 * largest
    np.testing.assert_array_equal(total.high.holders, many[-1].holders)


def test_the_difference_to_a_total_is_exact():
    one, little = (
        ClusterStatistics(np.full((1, 1), x), np.full(1, x), np.ones(1), x, x) for x in (1.0, 1e-17)
    )
    assert RunningTotal.of(one).plus(little).to(one).weight == -1e-17


@given(federations(), st.integers(0, 2**32 - 1), st.integers(1, 30))
@settings(max_examples=150)
def test_memory_at_server_and_at_clients_gives_the_same_numbers(problem, seed, n_rounds):
    """With any schedule and any lost replies."""
    X, clients, start = problem
    rng = np.random.default_rng(seed)
    weight = rng.choice([1.0, 0.1, 3.7], size=len(X))
    work = LocalWork(
        max_local=int(rng.integers(1, 4)), weighting=str(rng.choice(["dynamic", "by_compactness"]))
    )
    names = InProcess.from_arrays(X, clients).clients
    schedule = random_schedule(names, n_rounds, rng)
    losses = [some_lost(chosen, t, rng) for t, chosen in enumerate(schedule)]
    paths = []
    for memory in ("server", "client"):
        federation = Lossy(InProcess.from_arrays(X, clients, weight), lose=lambda t: losses[t])
        paths.append(list(play(federation, start, schedule, memory, work)))
    for (before, one), (_, two) in zip(*paths, strict=True):
        assert one.answered == two.answered
        assert_equal_statistics(one.memory.total.high, two.memory.total.high, scale_of(X, start), 1e-13)
        scale = max(1.0, np.abs(X).max(), np.abs(before).max())
        np.testing.assert_allclose(one.d, two.d, rtol=0, atol=1e-9 * scale)
        assert one.window == two.window
        np.testing.assert_allclose(one.estimate, two.estimate, rtol=1e-9, atol=1e-9 * scale**2)


@given(
    federations(),
    st.integers(0, 2**32 - 1),
    st.sampled_from(["server", "client"]),
    st.sets(st.sampled_from(["replies get lost", "sites restart", "clients leave"])),
)
@settings(max_examples=250)
@pytest.mark.filterwarnings("ignore:The total of the clients' statistics")
def test_the_total_is_the_sum_of_the_counted_statistics(problem, seed, memory, trouble):
    """After every round, the total is compared with statistics that the test computes, with losses too."""
    X, clients, start = problem
    rng = np.random.default_rng(seed)
    inner = InProcess.from_arrays(X, clients)
    find_target = find_memory(memory, ONE_STEP)
    state, latest, begun = State.start(start), {}, 0
    for t in range(25):
        may_begin_anew = False
        if "clients leave" in trouble and len(inner.clients) > 1 and rng.random() < 0.1:
            gone = str(rng.choice(inner.clients))
            inner.remove(gone)
            may_begin_anew = latest.pop(gone, None) is not None
        (chosen,) = random_schedule(inner.clients, 1, rng)
        if "sites restart" in trouble and rng.random() < 0.3:
            inner.sites[str(rng.choice(inner.clients))].forget_deltas()
        forgetful = {
            name for name in latest if name in chosen and not any(inner.sites[name].delta_states.values())
        }
        lost = ()
        if "replies get lost" in trouble:
            lost = some_lost(chosen, t, rng)
        federation = Lossy(inner, lose=lambda exchange, lost=lost: lost)
        found = run(federation, find_target(state, inner.clients, chosen))
        assert found.answered == tuple(name for name in chosen if name not in lost)
        if memory == "client":
            may_begin_anew |= bool(forgetful - set(lost))
            assert (found.memory.restarts > begun) == may_begin_anew
            latest = {} if may_begin_anew else latest
            begun = found.memory.restarts
        for name in found.answered:
            latest[name] = statistics_of(inner, name, state.centroids)
        expected = total_of(latest.values(), start.shape)
        assert_equal_statistics(found.memory.total.high, expected, scale_of(X, start), 1e-12)
        assert set(found.memory.latest.known if memory == "server" else found.memory.counted) == set(latest)
        state = next_state(state, found)


@given(federations(), st.integers(0, 2**32 - 1), st.sampled_from(["server", "client"]), st.booleans())
@settings(max_examples=200)
def test_when_no_label_changes_the_total_is_the_pooled_total(problem, seed, memory, lossy):
    """With any schedule in which every client is asked repeatedly."""
    X, clients, start = problem
    rng = np.random.default_rng(seed)
    inner = InProcess.from_arrays(X, clients)
    names = inner.clients
    find_target = find_memory(memory, ONE_STEP)
    state, heard = State.start(start), {}
    for t in range(400):
        (chosen,) = random_schedule(names, 1, rng)
        lost = some_lost(chosen, t, rng) if lossy else ()
        found = run(Lossy(inner, lose=lambda exchange, lost=lost: lost), find_target(state, names, chosen))
        heard.update({name: assign(inner.sites[name].X, state.centroids) for name in found.answered})
        state = next_state(state, found)
        settled = {name: assign(inner.sites[name].X, state.centroids) for name in names}
        if len(heard) == len(names) and all(np.array_equal(heard[n], settled[n]) for n in names):
            break
    else:
        assume(False)  # rows at equal distances may alternate because of rounding
    sums, counts = cluster_sums(X, assign(X, state.centroids), len(start))
    total = state.memory.total.high
    scale = max(1.0, np.abs(X).max())
    np.testing.assert_allclose(total.weighted_sum, sums, rtol=1e-9, atol=1e-9 * scale)
    np.testing.assert_array_equal(total.weight, counts)


def test_most_schedules_converge():
    """The property above needs runs that converge; without ties they do."""
    settled = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X, clients = rng.normal(size=(60, 3)), rng.integers(6, size=60)
        federation = InProcess.from_arrays(X, clients)
        schedule = random_schedule(federation.clients, 200, rng)
        *_, (_, found) = play(federation, X[:4], schedule, "client")
        labels = assign(X, found.d)
        sums, counts = cluster_sums(X, labels, 4)
        settled += bool(np.allclose(found.d, sums / counts[:, None], rtol=0, atol=1e-12))
    assert settled == 20


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_ten_thousand_rounds_cause_no_drift(offset):
    """The statistics change all the time and a third of the replies are lost; the total stays exact."""
    rng = np.random.default_rng(0)
    k, m, names = 4, 2, "abcde"
    counted, states, acknowledged = {}, DeltaStates(len(names), k, m), dict.fromkeys(names)
    total, naive = RunningTotal.nothing(k, m), ClusterStatistics.nothing(k, m)
    for round_ in range(10_000):
        for place, name in enumerate(names):
            if rng.random() < 0.5:
                continue
            weight = rng.random(k) * 10.0 ** rng.integers(-3, 4, size=k)
            centroids = offset + rng.normal(size=(k, m))
            statistics = ClusterStatistics(
                weight[:, None] * centroids, weight, np.ones(k), float(rng.random()), 7.0
            )
            stacked = StackedStatistics.of({name: statistics})
            _, lost = states.renew(np.array([place]), stacked, f"exchange {round_}", [acknowledged[name]])
            change = states.pending_of(place)
            assert not lost.any()
            if rng.random() < 0.67:
                total, naive = total.plus(change), naive + change
                counted[name], acknowledged[name] = statistics, f"exchange {round_}"
    expected = RunningTotal.nothing(k, m)
    for statistics in counted.values():
        expected = expected.plus(statistics)
    error = np.abs((total.high - expected.high).weighted_sum).max()
    drift = np.abs((naive - expected.high).weighted_sum).max()
    largest = 1e4 * max(1.0, offset)
    assert error <= 1e-15 * largest
    assert drift > 10 * error  # the error in plain double precision
