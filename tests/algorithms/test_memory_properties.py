"""Totals that remember: equal in both forms, never corrupted, and pooled in the end."""

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
    """Run rounds with a given schedule of who is asked; yields (asked at, Target)."""
    find_target = find_memory(memory, work)
    state = State.start(start)
    for chosen in schedule:
        found = run(federation, find_target(state, federation.clients, chosen))
        yield state.centroids, found
        state = next_state(state, found)


def random_schedule(clients, n_rounds, rng):
    """Random subsets of one client or more."""
    sizes = rng.integers(1, len(clients) + 1, size=n_rounds)
    return [tuple(sorted(rng.choice(clients, size=size, replace=False))) for size in sizes]


def some_lost(chosen, round_, rng):
    """Replies that get lost: many, but all of them only in every third round, or the run would end."""
    lost = tuple(name for name in chosen if rng.random() < 0.4)
    return lost if len(lost) < len(chosen) or round_ % 3 == 0 else lost[1:]


def word_of(federation, client, centroids, work=ONE_STEP):
    return federation.sites[client].answer(SendStatistics(work.query(centroids)))


def assert_equal_words(one, two, scale, rtol):
    """Compare sums with the size of what was added up, not with what may be left of it."""
    np.testing.assert_allclose(one.weighted_sum, two.weighted_sum, rtol=0, atol=rtol * scale)
    np.testing.assert_allclose(one.weight, two.weight, rtol=0, atol=rtol * scale)
    np.testing.assert_array_equal(one.holders, two.holders)
    assert one.n_samples == pytest.approx(two.n_samples, abs=rtol * scale)
    assert one.inertia == pytest.approx(two.inertia, abs=rtol * scale**2)


def total_of(words, shape):
    total = ClusterStatistics.nothing(*shape)
    for word in words:
        total = total + word
    return total


def scale_of(X, start):
    return len(X) * max(1.0, np.abs(X).max(), np.abs(start).max())


# Finite numbers of very different sizes, as sums of rows of far-off data are.
numbers = st.builds(lambda a, e: a * 2.0**e, st.floats(-1, 1), st.integers(-60, 60))


@given(numbers, numbers)
def test_two_sum_loses_nothing(a, b):
    total, rest = two_sum(a, b)
    assert total == a + b
    assert math.fsum([a, b, -total, -rest]) == 0.0


def word_from(rng, k=2, m=3):
    size = 10.0 ** rng.integers(-8, 9)
    return ClusterStatistics(
        rng.normal(size=(k, m)) * size, rng.random(k) * size, rng.integers(2, size=k) * 1.0, size, 3.0
    )


@given(st.integers(0, 2**32 - 1))
def test_a_running_total_is_the_exact_sum_of_what_is_in_it(seed):
    """Add words of very different sizes and take most of them off again."""
    rng = np.random.default_rng(seed)
    words = [word_from(rng) for _ in range(12)]
    total = RunningTotal.nothing(2, 3)
    for word in words:
        total = total.plus(word)
    for word in words[:-1]:
        total = total.plus(-word)
    largest = max(np.abs(word.weighted_sum).max() for word in words)
    left = total.high - words[-1]
    assert np.abs(left.weighted_sum).max() <= 1e-28 * largest
    np.testing.assert_array_equal(total.high.holders, words[-1].holders)


def test_what_is_missing_is_told_to_the_last_digit():
    one, little = (
        ClusterStatistics(np.full((1, 1), x), np.full(1, x), np.ones(1), x, x) for x in (1.0, 1e-17)
    )
    assert RunningTotal.of(one).plus(little).to(one).weight == -1e-17


@given(federations(), st.integers(0, 2**32 - 1), st.integers(1, 30))
@settings(max_examples=150)
def test_both_forms_of_the_last_word_give_the_same_numbers(problem, seed, n_rounds):
    """Whoever is asked, whatever gets lost on the way."""
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
        assert_equal_words(one.memory.total.high, two.memory.total.high, scale_of(X, start), 1e-13)
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
def test_the_total_is_the_sum_of_the_words_that_were_counted(problem, seed, memory, trouble):
    """Checked after every round against words kept by the test, whatever goes wrong."""
    X, clients, start = problem
    rng = np.random.default_rng(seed)
    inner = InProcess.from_arrays(X, clients)
    find_target = find_memory(memory, ONE_STEP)
    state, words, begun = State.start(start), {}, 0
    for t in range(25):
        may_begin_anew = False
        if "clients leave" in trouble and len(inner.clients) > 1 and rng.random() < 0.1:
            gone = str(rng.choice(inner.clients))
            inner.remove(gone)
            may_begin_anew = words.pop(gone, None) is not None
        (chosen,) = random_schedule(inner.clients, 1, rng)
        if "sites restart" in trouble and rng.random() < 0.3:
            inner.sites[str(rng.choice(inner.clients))].forget_deltas()
        forgetful = {
            name for name in words if name in chosen and not any(inner.sites[name].delta_states.values())
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
            words = {} if may_begin_anew else words
            begun = found.memory.restarts
        for name in found.answered:
            words[name] = word_of(inner, name, state.centroids)
        expected = total_of(words.values(), start.shape)
        assert_equal_words(found.memory.total.high, expected, scale_of(X, start), 1e-12)
        assert set(found.memory.latest.known if memory == "server" else found.memory.counted) == set(words)
        state = next_state(state, found)


@given(federations(), st.integers(0, 2**32 - 1), st.sampled_from(["server", "client"]), st.booleans())
@settings(max_examples=200)
def test_once_nobodys_labels_change_the_total_is_the_pooled_total(problem, seed, memory, lossy):
    """Under any schedule in which every client appears again and again."""
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
        assume(False)  # rows at equal distances may go to and fro with rounding
    sums, counts = cluster_sums(X, assign(X, state.centroids), len(start))
    total = state.memory.total.high
    scale = max(1.0, np.abs(X).max())
    np.testing.assert_allclose(total.weighted_sum, sums, rtol=1e-9, atol=1e-9 * scale)
    np.testing.assert_array_equal(total.weight, counts)


def test_most_schedules_settle():
    """The property above means little if its runs seldom settle; on untied data they do."""
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
def test_ten_thousand_rounds_leave_no_drift(offset):
    """Words that change all the time, a third of the replies lost: the sum is still that of the words."""
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
            word = ClusterStatistics(
                weight[:, None] * centroids, weight, np.ones(k), float(rng.random()), 7.0
            )
            statistics = StackedStatistics.of({name: word})
            _, lost = states.renew(np.array([place]), statistics, f"exchange {round_}", [acknowledged[name]])
            change = states.pending_of(place)
            assert not lost.any()
            if rng.random() < 0.67:
                total, naive = total.plus(change), naive + change
                counted[name], acknowledged[name] = word, f"exchange {round_}"
    expected = RunningTotal.nothing(k, m)
    for word in counted.values():
        expected = expected.plus(word)
    error = np.abs((total.high - expected.high).weighted_sum).max()
    drift = np.abs((naive - expected.high).weighted_sum).max()
    largest = 1e4 * max(1.0, offset)
    assert error <= 1e-15 * largest
    assert drift > 10 * error  # what would happen in plain double precision
