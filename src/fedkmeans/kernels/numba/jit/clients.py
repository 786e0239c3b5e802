"""Passes over rows, local steps of many clients by such passes, and sums over clients."""

from __future__ import annotations

import numpy as np

from fedkmeans.kernels.numba.jit.buffers import most_rows, new_dense_scratch, new_scratch, new_workspace
from fedkmeans.kernels.numba.jit.common import (
    AS_RECEIVED,
    MANY_COLUMNS,
    MEAN,
    chosen_by_type,
    copy,
    entry,
    fill,
    inner,
    is_sparse,
    part_of_caller,
)
from fedkmeans.kernels.numba.jit.nearest import (
    focus,
    load_rows,
    nearest_by_definition,
    nearest_by_product,
    quick_square,
    rows_as_they_are,
    square_lengths,
)
from fedkmeans.kernels.numba.jit.sparse import scan_sparse


@part_of_caller()
def add_rows(X, start, n, label, sums, counts):
    """Add rows to the sums and counts of their clusters, in their order."""
    for q in range(n):
        j = label[q]
        counts[j] += 1.0
        for f in range(X.shape[1]):
            sums[j, f] += np.float64(X[start + q, f])


@part_of_caller()
def add_long_rows(X, start, n, label, order, ends, sums, counts):
    """The same, one cluster after the other, so that its sum stays in the processor's cache.

    `order` (n,) and `ends` (k,) are buffers.
    """
    fill(ends, 0)
    for q in range(n):
        ends[label[q]] += 1
    for j in range(1, len(ends)):
        ends[j] += ends[j - 1]
    for q in range(n - 1, -1, -1):  # the rows of each cluster keep their order
        j = label[q]
        ends[j] -= 1
        order[ends[j]] = start + q
    for j in range(len(ends)):
        e, stop = ends[j], n if j == len(ends) - 1 else ends[j + 1]
        counts[j] += stop - e
        # Four rows at a time, so that the sums are read and written once for four terms.
        while e + 4 <= stop:
            p0, p1, p2, p3 = order[e], order[e + 1], order[e + 2], order[e + 3]
            for f in range(X.shape[1]):
                x0, x1, x2, x3 = np.float64(X[p0, f]), np.float64(X[p1, f]), X[p2, f], X[p3, f]
                sums[j, f] = (((sums[j, f] + x0) + x1) + np.float64(x2)) + np.float64(x3)
            e += 4
        while e < stop:
            p0 = order[e]
            for f in range(X.shape[1]):
                sums[j, f] += np.float64(X[p0, f])
            e += 1


@part_of_caller()
def add_weighted_rows(X, start, n, weight, label, sums, counts):
    """The same for rows with weights; product and sum are rounded one after the other."""
    for q in range(n):
        j, own = label[q], weight[start + q]
        counts[j] += own
        for f in range(X.shape[1]):
            sums[j, f] += own * np.float64(X[start + q, f])


@part_of_caller()
def add_inertia(X, start, n, weight, label, centroids, inertia):
    """Add squared distances to the own centroid, per cluster."""
    for q in range(n):
        own = weight[start + q] if len(weight) else 1.0
        j = np.int64(label[q])
        inertia[j] += own * quick_square(X, start + q, centroids, j)


@entry()
def scan(X, weight, start, stop, centroids, labels, sums, counts, inertia):
    """See `scan_dense`."""
    k, m = centroids.shape
    scratch = new_dense_scratch(X, k, m, stop - start, False)
    scan_dense(X, weight, start, stop, centroids, scratch, labels, sums, counts, inertia)


@inner()
def scan_dense(X, weight, start, stop, centroids, scratch, labels, sums, counts, inertia):
    """One pass over rows: labels, sums, counts and squared distances to the own centroid.

    To leave an output out, pass an array of length zero. A `weight` of length zero means ones.
    """
    size, label, (k, m) = scratch.size, scratch.label, centroids.shape
    few = len(scratch.columns) > 0
    scaled, squares, lengths = scratch.scaled[:k], scratch.squares, scratch.lengths
    factor, reach, stay = 1.0, 1.0, False
    if not few:
        factor, reach, stay = focus(centroids, scaled, squares, scratch.shift, scratch.shift.itemsize == 4)
    factor = scratch.shift.dtype.type(factor)
    for block in range(start, stop, size):
        n = min(size, stop - block)
        if few:
            nearest_by_definition(X, block, n, centroids, scratch)
        else:
            rows = scratch.rows[: n * m].reshape(n, m)
            if stay:
                rows = rows_as_they_are(X, block, n, rows)
                square_lengths(rows, lengths)
            else:
                load_rows(X, block, n, scratch.shift, factor, rows, lengths)
            nearest_by_product(X, block, centroids, rows, lengths, scaled, squares, reach, scratch)
        if len(labels):
            for q in range(n):
                labels[block + q] = label[q]
        if len(counts) and len(weight):
            add_weighted_rows(X, block, n, weight, label, sums, counts)
        elif len(counts) and X.shape[1] >= MANY_COLUMNS:
            add_long_rows(X, block, n, label, scratch.order, scratch.ends[: len(centroids)], sums, counts)
        elif len(counts):
            add_rows(X, block, n, label, sums, counts)
        if len(inertia):
            add_inertia(X, block, n, weight, label, centroids, inertia)


scan_table = chosen_by_type(is_sparse, scan_sparse, scan_dense)


@entry()
def scan_clients(data, which, places, received, settings, results):
    """Local steps of several clients; each step scans the client's rows.

    The results of client which[a] go to places[a]. A weight of length zero means ones.
    """
    k, m = received.shape
    scratch = new_scratch(data.X, k, m, most_rows(data.starts, which), False)
    workspace = new_workspace(k, m, 0)
    for a in range(len(which)):
        scan_client(data, which[a], places[a], received, settings, scratch, workspace, results)


@part_of_caller()
def scan_client(data, client, place, received, settings, scratch, workspace, results):
    """Local steps of one client."""
    k, n_active, active = len(received), len(received), workspace.n_rows
    local, sums, count, own = workspace.local, workspace.means, workspace.count, workspace.squares
    means, status, last_counts = results.means, results.status, results.last_counts
    inertia, received_inertia = results.inertia, results.received_inertia
    start, stop, with_inertia = data.starts[client], data.starts[client + 1], len(inertia) > 0
    for j in range(k):
        active[j] = j
        copy(received[j], local[j])
    for step in range(settings.max_local):
        for j in range(k):
            fill(sums[j], 0.0)
        fill(count, 0.0)
        fill(own, 0.0)
        scan_table(
            data.X, data.weight, start, stop, local[:n_active], scratch, scratch.label[:0], sums, count,
            own if with_inertia else own[:0],
        )  # fmt: skip
        if step == 0:
            copy(count, results.counts[place])
            if with_inertia:
                received_inertia[place] = 0.0
                for j in range(k):
                    received_inertia[place] += own[j]
            if settings.drop:
                n_active = drop_empty(received, local, sums, count, own, active)
        if move_to_means(n_active, local, sums, count, own) < settings.tol_local:
            break
    for j in range(k):
        copy(received[j], means[place, j])
        status[place, j] = MEAN
        last_counts[place, j] = 0.0
        if with_inertia:
            inertia[place, j] = 0.0
    for q in range(n_active):
        copy(local[q], means[place, active[q]])
        last_counts[place, active[q]] = count[q]
        if with_inertia:
            inertia[place, active[q]] = max(own[q], 0.0)


@inner()
def drop_empty(received, local, sums, count, own, active):
    """Leave out clusters without rows; returns how many are left. Their numbers go to `active`."""
    n_active = 0
    for j in range(len(received)):
        if count[j] > 0:
            active[n_active] = j
            copy(received[j], local[n_active])
            copy(sums[j], sums[n_active])
            count[n_active], own[n_active] = count[j], own[j]
            n_active += 1
    return n_active


@inner()
def move_to_means(n_active, local, sums, count, own):
    """Move the local centroids to the means of their rows; returns by how far, over all clusters."""
    movement = 0.0
    for j in range(n_active):
        if count[j] > 0:
            away = 0.0
            for f in range(local.shape[1]):
                mean = sums[j, f] / count[j]
                away += (mean - local[j, f]) ** 2
                local[j, f] = mean
            movement += away
            own[j] -= count[j] * away  # Σ‖x - mean‖² from distances to the previous centroid
    return np.sqrt(movement)


@inner()
def local_centroid(received, means, status, i, j):
    """Local centroid of cluster j of client i."""
    return received[j] if status[i, j] == AS_RECEIVED else means[i, j]


@entry()
def add_up(weights, places, received, means, status, clusters, weighted_sum, plain_sum):
    """Add Σ ω c and Σ c over clients, for some clusters, in the order of the clients."""
    m, n = received.shape[1], len(places)
    for j in clusters:
        a = 0
        # Four clients at a time, so that the sums are read and written once for four terms.
        while a + 4 <= n:
            w0, w1, w2, w3 = weights[a, j], weights[a + 1, j], weights[a + 2, j], weights[a + 3, j]
            c0 = local_centroid(received, means, status, places[a], j)
            c1 = local_centroid(received, means, status, places[a + 1], j)
            c2 = local_centroid(received, means, status, places[a + 2], j)
            c3 = local_centroid(received, means, status, places[a + 3], j)
            for f in range(m):
                x0, x1, x2, x3 = c0[f], c1[f], c2[f], c3[f]
                weighted_sum[j, f] = (((weighted_sum[j, f] + w0 * x0) + w1 * x1) + w2 * x2) + w3 * x3
                plain_sum[j, f] = (((plain_sum[j, f] + x0) + x1) + x2) + x3
            a += 4
        while a < n:
            own, centroid = weights[a, j], local_centroid(received, means, status, places[a], j)
            for f in range(m):
                weighted_sum[j, f] += own * centroid[f]
                plain_sum[j, f] += centroid[f]
            a += 1
