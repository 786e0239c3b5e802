"""Local steps of many clients by scanning their rows, and sums over clients."""

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import overload

from fedkmeans.kernels.numba.jit.common import AS_RECEIVED, MEAN, copy, entry, fill, inner, part_of_caller
from fedkmeans.kernels.numba.jit.scan import scan
from fedkmeans.kernels.numba.jit.sparse import scan_sparse


def scan_table(X, weight, start, stop, centroids, scratch, labels, sums, counts, inertia):
    """`scan`, or `scan_sparse` for sparse rows; chosen at compile time.

    This body runs where code is not compiled (NUMBA_DISABLE_JIT).
    """
    chosen = scan_sparse if isinstance(X, tuple) else scan
    chosen(X, weight, start, stop, centroids, scratch, labels, sums, counts, inertia)


@overload(scan_table)
def _choose_scan(X, weight, start, stop, centroids, scratch, labels, sums, counts, inertia):
    chosen = scan_sparse if isinstance(X, types.BaseTuple | tuple) else scan

    def call(X, weight, start, stop, centroids, scratch, labels, sums, counts, inertia):
        chosen(X, weight, start, stop, centroids, scratch, labels, sums, counts, inertia)

    return call


@entry()
def scan_clients(data, which, places, received, settings, scratch, workspace, results):
    """Local steps of several clients; each step scans the client's rows.

    The results of client which[a] go to places[a]. A weight of length zero means ones.
    """
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
def add_up(weights, places, received, results, first, last, weighted_sum, plain_sum):
    """Add Σ ω c and Σ c over clients, for clusters `first` to `last`, in the order of the clients."""
    m, n, means, status = received.shape[1], len(places), results.means, results.status
    for j in range(first, last):
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
