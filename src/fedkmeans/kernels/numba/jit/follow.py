"""Answers of many clients after `follow_labels`, from what is known of their previous answers."""

from __future__ import annotations

import numpy as np

from fedkmeans.kernels.numba.jit.buffers import most_rows, new_workspace
from fedkmeans.kernels.numba.jit.common import AS_RECEIVED, MEAN, ONE_STEP, copy, entry, fill, inner
from fedkmeans.kernels.numba.jit.gram import move_row, sum_gram
from fedkmeans.kernels.numba.jit.gram_steps import gram_steps
from fedkmeans.kernels.numba.jit.nearest import quick_square, square_between
from fedkmeans.kernels.numba.jit.structures import Client, Gram
from fedkmeans.kernels.numba.jit.totals import measure_rows


@inner()
def count_changes(bounds, start, stop):
    """Rows whose first label differs from the previous one."""
    n_changed = 0
    for p in range(start, stop):
        n_changed += bounds.before[p] != bounds.labels[p]
    return n_changed


@inner()
def count_first(weight, labels, counts):
    """Weight of each cluster by the first labels."""
    fill(counts, 0.0)
    for p in range(len(labels)):
        counts[labels[p]] += weight[p]


@inner()
def last_labels(bounds, i, start, stop, buffer):
    """Labels that the means belong to: those of the last step of the previous answer, or -1."""
    before = buffer[: stop - start]
    copy(bounds.final[start:stop], before)
    if bounds.answered[i] == 0:
        fill(before, np.int32(-1))
    return before


@inner()
def renew_means(X, weight, before, final, was, status, last_counts, means, dirty):
    """Compute the means of those clusters whose rows have changed."""
    k = len(status)
    for j in range(k):
        dirty[j] = status[j] == MEAN and was[j] != MEAN
    for p in range(len(final)):
        if before[p] != final[p]:
            if before[p] >= 0:
                dirty[before[p]] = status[before[p]] == MEAN
            dirty[final[p]] = True
    for j in range(k):
        if dirty[j]:
            fill(means[j], 0.0)
    for p in range(len(final)):
        j = final[p]
        if dirty[j]:
            own = weight[p]
            for f in range(X.shape[1]):
                means[j, f] += own * np.float64(X[p, f])
    for j in range(k):
        if dirty[j]:
            for f in range(X.shape[1]):
                means[j, f] /= last_counts[j]


@entry()
def follow_step(data, which, bounds, middles, squares):
    """The answers of several clients that make one local step, after `follow_labels`.

    `middles` and `squares` of `InertiaArrays` are filled in on the way, if they have a length.
    """
    results = bounds.results
    k = results.counts.shape[1]
    final, status = np.empty(most_rows(data.starts, which), np.int32), np.empty(k, np.int8)
    dirty = np.empty(k, np.bool_)
    for a in range(len(which)):
        i = which[a]
        start, stop = data.starts[i], data.starts[i + 1]
        n_changed = count_changes(bounds, start, stop)
        if n_changed == 0 and bounds.answered[i] == ONE_STEP:
            continue
        before, weight = last_labels(bounds, i, start, stop, final), data.weight[start:stop]
        count_first(weight, bounds.labels[start:stop], results.counts[i])
        copy(bounds.labels[start:stop], bounds.final[start:stop])
        copy(results.counts[i], results.last_counts[i])
        for j in range(k):
            status[j] = results.status[i, j]
            results.status[i, j] = MEAN if results.counts[i, j] > 0 else AS_RECEIVED
        renew_means(
            data.X[start:stop], weight, before, bounds.final[start:stop], status,
            results.status[i], results.last_counts[i], results.means[i], dirty,
        )  # fmt: skip
        bounds.answered[i] = ONE_STEP
        if len(squares) > 0 and squares[start] < 0:  # now, while the rows are in the processor's cache
            measure_rows(data.X, start, stop, middles[i], squares)
        if n_changed:
            bounds.n_moves[i] = -1  # T belongs to the previous labels


@inner()
def answer_stands(bounds, i, start, stop, received, settings):
    """Whether local steps would take the same course with the received centroids, which moved a little.

    They only depend on these if a cluster without rows could win some, or if the first step could be a
    small one.
    """
    k, n = len(received), stop - start
    if not settings.drop:
        lower = bounds.lower[start * k : stop * k].reshape(k, n)
        for j in range(k):
            if bounds.results.status[i, j] == AS_RECEIVED:
                for p in range(n):
                    if not lower[j, p] * lower[j, p] > bounds.reach[start + p]:
                        return False
    if settings.tol_local > 0:
        centroid = received[bounds.probe_clusters[i]]
        return np.sqrt(square_between(bounds.probes[i], centroid)) >= settings.tol_local
    return True


@inner()
def sum_first(client, gram, before, n_moves, n_changed):
    """Bring T up to date with the first labels; returns how many rows changed since it was summed."""
    if n_moves < 0 or n_moves + n_changed > len(before):
        sum_gram(gram.products, client.weight, client.first, client.sums)
        return 0
    for p in range(len(before)):
        if before[p] != client.first[p]:
            move_row(gram.products, p, client.weight[p], client.sums, before[p], client.first[p])
    return n_moves + n_changed


@entry()
def follow_steps(data, which, received, settings, number, grams, bounds):
    """The answers of several clients that make several local steps, after `follow_labels`.

    `number` identifies the settings: an answer stands only for the same settings.
    """
    (k, m), results = received.shape, bounds.results
    workspace = new_workspace(k, m, most_rows(data.starts, which))
    for a in range(len(which)):
        i = which[a]
        start, stop = data.starts[i], data.starts[i + 1]
        n, n_changed = stop - start, count_changes(bounds, start, stop)
        if (
            n_changed == 0
            and bounds.answered[i] == number
            and not bounds.depends[i]
            and answer_stands(bounds, i, start, stop, received, settings)
        ):
            continue
        client = Client(
            data.X[start:stop], data.weight[start:stop], bounds.labels[start:stop], bounds.final[start:stop],
            bounds.lower[start * k : stop * k].reshape(k, n), bounds.reach[start:stop],
            bounds.sums[start * k : stop * k].reshape(k, n), results.means[i], results.status[i],
            results.counts[i], results.last_counts[i], bounds.probes[i],
        )  # fmt: skip
        offset = grams.offsets[i]
        gram = Gram(
            grams.pool[offset : offset + n * n].reshape(n, n), grams.lengths[start:stop], grams.scales[i],
            grams.errors[i],
        )  # fmt: skip
        last = last_labels(bounds, i, start, stop, workspace.final)
        copy(client.status, workspace.status)
        count_first(client.weight, client.first, client.counts)
        bounds.n_moves[i] = sum_first(client, gram, bounds.before[start:stop], bounds.n_moves[i], n_changed)
        bounds.depends[i], bounds.probe_clusters[i] = gram_steps(client, received, settings, gram, workspace)
        renew_means(
            client.X, client.weight, last, client.final, workspace.status, client.status,
            client.last_counts, client.means, workspace.dirty,
        )  # fmt: skip
        bounds.answered[i] = number


@entry()
def score_clients(data, which, received, bounds, scores):
    """Sum of squared distances to the received centroids per client, after `follow_labels`."""
    for a in range(len(which)):
        i = which[a]
        start, stop = data.starts[i], data.starts[i + 1]
        scores[a] = 0.0
        for p in range(start, stop):
            square = quick_square(data.X, p, received, np.int64(bounds.labels[p]))
            scores[a] += data.weight[p] * square
        if count_changes(bounds, start, stop):
            bounds.answered[i], bounds.n_moves[i] = 0, -1  # the last answer belongs to other labels


@entry()
def inertia_of_clients(data, which, received, bounds, inertia, received_inertia):
    """Sums of squared distances: per cluster to the local centroids, in all to the received ones."""
    X, first, final, means = data.X, bounds.labels, bounds.final, bounds.results.means
    for a in range(len(which)):
        i = which[a]
        fill(inertia[i], 0.0)
        received_inertia[i] = 0.0
        for p in range(data.starts[i], data.starts[i + 1]):
            own = data.weight[p]
            received_inertia[i] += own * quick_square(X, p, received, np.int64(first[p]))
            inertia[i, final[p]] += own * quick_square(X, p, means[i], np.int64(final[p]))
