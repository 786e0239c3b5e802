"""Local steps of one client after the first, by its Gram matrix."""

from __future__ import annotations

import numpy as np

from fedkmeans.kernels.numba.jit.common import (
    AS_RECEIVED,
    DOUBLE,
    FROZEN,
    MEAN,
    copy,
    fill,
    inner,
    part_of_caller,
)
from fedkmeans.kernels.numba.jit.gram import mean_of, move_row, square_means, two_lowest_means
from fedkmeans.kernels.numba.jit.nearest import exact_square, quick_square, square_between


@part_of_caller()
def gram_steps(client, received, settings, gram, workspace):
    """Local steps of one client from its first labels on: labels and counts of the last step.

    Returns whether the steps depend on the received centroids and not only on the first labels, because a
    cluster without rows won some, or because the first step was small; and the probe's cluster.
    """
    n, tol_local = len(client.first), settings.tol_local
    sums = workspace.sums[: len(received) * n].reshape(len(received), n)
    frozen = workspace.frozen[: len(received) * n].reshape(len(received), n)
    best, second, label = workspace.best[:n], workspace.second[:n], workspace.label[:n]
    start_steps(client, sums, workspace)
    depends, probe_cluster = False, -1
    if tol_local > 0:
        small, probe_cluster = first_movement_is_small(client, received, tol_local, workspace)
        if small:
            copy(workspace.count, client.last_counts)
            return True, probe_cluster  # the next time it may be large
    for _ in range(1, settings.max_local):
        square_means(
            client.weight, client.final, client.status, workspace.count, sums, workspace.factors,
            workspace.squares,
        )  # fmt: skip
        two_lowest_means(
            sums, workspace.factors, workspace.squares, frozen, client.status, best, second, label
        )
        if not settings.drop:
            consider_received(client.X, received, client.status, client.lower, gram, best, second, label)
        if choose_labels(client, received, gram, settings.drop, workspace) == 0:
            break
        freeze_empty(client, sums, frozen, workspace)
        moving = (
            tol_local <= 0
            or surely_moves(client, label, sums, gram, tol_local, workspace)
            or means_move(client, received, label, tol_local, workspace)
        )
        if change_labels(client, label, sums, gram.products, workspace):
            depends = True
        if not moving:
            break
    copy(workspace.count, client.last_counts)
    return depends, probe_cluster


@inner()
def start_steps(client, sums, workspace):
    """Start from the first labels."""
    for j in range(len(sums)):
        copy(client.sums[j], sums[j])
        client.status[j] = MEAN if client.counts[j] > 0 else AS_RECEIVED
        workspace.ready[j] = False
    copy(client.first, client.final)
    copy(client.counts, workspace.count)
    fill(client.reach, 0.0)


@inner()
def first_movement_is_small(client, received, tol_local, workspace):
    """Whether the first step moves all centroids together by less than `tol_local`.

    Mostly the first cluster with rows shows that it does not. Its mean is kept as the client's probe; the
    second number is that cluster.
    """
    total, cluster, mean = 0.0, -1, workspace.vector
    for j in range(len(received)):
        if workspace.count[j] > 0 and (cluster < 0 or np.sqrt(total) < tol_local):
            mean_of(client.X, client.weight, client.first, j, workspace.count[j], mean)
            total += square_between(mean, received[j])
            if cluster < 0:
                cluster = j
                copy(mean, client.probe)
    return np.sqrt(total) < tol_local, cluster


@inner()
def consider_received(X, received, status, lower, gram, best, second, label):
    """Include clusters that are still as received in the search for the nearest centroid.

    Their distances are computed only if the lower bounds do not rule them out.
    """
    sure, lengths, scale, error = 1 + (X.shape[1] + 16) * 4 * DOUBLE, gram.lengths, gram.scale, gram.error
    for j in range(len(received)):
        if status[j] != AS_RECEIVED:
            continue
        n_near = 0  # mostly none; the processor sees this for several rows at once
        for p in range(len(best)):
            n_near += not lower[j, p] * lower[j, p] > (best[p] + lengths[p] + 3 * error) * scale
        if n_near == 0:
            continue
        for p in range(len(best)):
            if not lower[j, p] * lower[j, p] > (best[p] + lengths[p] + 3 * error) * scale:
                square = quick_square(X, p, received, j)
                lower[j, p] = np.sqrt(square) * (2 - sure)
                value = square / scale - lengths[p]
                second[p] = min(second[p], max(value, best[p]))
                if value < best[p]:
                    best[p], label[p] = value, j


@inner()
def choose_labels(client, received, gram, drop, workspace):
    """Decide close calls and count rows per cluster; returns how many labels have changed."""
    best, second, label, n_rows = workspace.best, workspace.second, workspace.label, workspace.n_rows
    final, reach, lengths, error = client.final, client.reach, gram.lengths, gram.error
    fill(n_rows, 0)
    n_changed = 0
    for p in range(len(final)):
        if not second[p] - best[p] > 2 * error:
            label[p] = decide_by_means(client, received, p, gram, best[p] + 2 * error, drop, workspace)
        reach[p] = max(reach[p], (best[p] + lengths[p] + 3 * error) * gram.scale)
        n_rows[label[p]] += 1
        n_changed += label[p] != final[p]
    return n_changed


@inner()
def decide_by_means(client, received, p, gram, limit, drop, workspace):
    """Nearest local centroid of a row by the plain formula, among those with values within `limit`."""
    n, squares = len(client.final), workspace.squares
    best, label = np.inf, 0
    for j in range(len(received)):
        if client.status[j] == MEAN:
            value = squares[j] - 2 * workspace.factors[j] * workspace.sums[j * n + p]
        elif client.status[j] == FROZEN:
            value = squares[j] - 2 * workspace.frozen[j * n + p]
        elif drop:
            continue
        else:
            value = client.lower[j, p] * client.lower[j, p] / gram.scale - gram.lengths[p]
        if not value > limit:
            find_local(client, received, j, workspace)
            square = exact_square(client.X, p, workspace.local, j)
            if square < best:
                best, label = square, j
    return label


@inner()
def find_local(client, received, j, workspace):
    """Compute the local centroid of a cluster as in the plain version, in workspace.local."""
    if not workspace.ready[j]:
        local = workspace.local[j]
        if client.status[j] == MEAN:
            mean_of(client.X, client.weight, client.final, j, workspace.count[j], local)
        elif client.status[j] == FROZEN:
            copy(client.means[j], local)
        else:
            copy(received[j], local)
        workspace.ready[j] = True


@inner()
def freeze_empty(client, sums, frozen, workspace):
    """Keep the means of clusters that are about to lose all their rows."""
    for j in range(len(sums)):
        if client.status[j] == MEAN and workspace.n_rows[j] == 0:
            mean_of(client.X, client.weight, client.final, j, workspace.count[j], client.means[j])
            workspace.status[j] = FROZEN  # the mean of the previous answer is overwritten
            for p in range(sums.shape[1]):
                frozen[j, p] = sums[j, p] * workspace.factors[j]


@inner()
def change_labels(client, label, sums, products, workspace):
    """Take over the new labels; returns whether a cluster that was as received won rows."""
    final, weight, status, n_rows = client.final, client.weight, client.status, workspace.n_rows
    for p in range(len(final)):
        if label[p] != final[p]:
            move_row(products, p, weight[p], sums, final[p], label[p])
            workspace.ready[final[p]] = False
            workspace.ready[label[p]] = False
    fill(workspace.count, 0.0)
    for p in range(len(final)):
        final[p] = label[p]
        workspace.count[label[p]] += weight[p]
    won = False
    for j in range(len(status)):
        if n_rows[j] > 0:
            won = won or status[j] == AS_RECEIVED
            status[j] = MEAN
        elif status[j] == MEAN:
            status[j] = FROZEN
            fill(sums[j], 0.0)
    return won


@inner()
def surely_moves(client, new, sums, gram, tol_local, workspace):
    """Whether the Gram matrix proves that a centroid moves by more than `tol_local`.

    If a cluster has the mean a before and b afterwards, |a·b - a·a| is at most ‖b - a‖, as no row is
    longer than one.
    """
    old, weight = client.final, client.weight
    for p in range(len(old)):
        j = old[p]
        if new[p] != j and workspace.n_rows[j] > 0:
            product, count = 0.0, 0.0
            for q in range(len(new)):
                if new[q] == j:
                    product += weight[q] * sums[j, q]
                    count += weight[q]
            difference = abs(product * workspace.factors[j] / count - workspace.squares[j])
            return difference > 4 * gram.error and difference * np.sqrt(gram.scale) > 4 * tol_local
    return False


@inner()
def means_move(client, received, new, tol_local, workspace):
    """Whether centroids move by `tol_local` or more with the new labels; mostly the first one tells."""
    old, changed, count, n_rows = client.final, workspace.dirty, workspace.factors, workspace.n_rows
    fill(changed, False)
    fill(count, 0.0)
    for p in range(len(old)):
        count[new[p]] += client.weight[p]
        if old[p] != new[p]:
            changed[old[p]] = n_rows[old[p]] > 0
            changed[new[p]] = True
    total = 0.0
    for j in range(len(n_rows)):
        if changed[j] and np.sqrt(total) < tol_local:
            find_local(client, received, j, workspace)
            mean_of(client.X, client.weight, new, j, count[j], workspace.vector)
            total += square_between(workspace.vector, workspace.local[j])
    return np.sqrt(total) >= tol_local
