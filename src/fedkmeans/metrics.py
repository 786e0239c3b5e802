"""Metrics of a clustering, as in the paper."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics import adjusted_rand_score, homogeneity_completeness_v_measure
from sklearn.metrics.cluster import contingency_matrix

from fedkmeans._utils.typing import FloatArray
from fedkmeans.errors import DataError
from fedkmeans.kernels.reference.kmeans import inertia_of
from fedkmeans.kernels.sparse import as_table


def score_per_sample(X: Any, centroids: FloatArray) -> float:
    """Return the mean squared distance of the rows (n, m) to their nearest centroid: the paper's score."""
    X = as_table(X)
    return inertia_of(X, centroids) / len(X)


def accuracy(labels_true: Any, labels_pred: Any) -> float:
    """Return the share of rows whose label is the most frequent one in their cluster.

    Several clusters may have the same majority label.

    Examples
    --------
    >>> accuracy([0, 0, 1, 1, 1], [7, 7, 7, 2, 2])
    0.8
    """
    labels_true, labels_pred = np.asarray(labels_true), np.asarray(labels_pred)
    if labels_true.shape != labels_pred.shape:
        raise DataError(
            f"There are {len(labels_pred)} predicted labels for {len(labels_true)} true ones; "
            "they must belong to the same rows."
        )
    if not len(labels_true):
        raise DataError("Accuracy needs at least one label.")
    return float(contingency_matrix(labels_true, labels_pred).max(axis=0).sum() / len(labels_true))


def external_metrics(labels_true: Any, labels_pred: Any) -> dict[str, float]:
    """Return accuracy, v-measure, homogeneity, completeness and the adjusted Rand index."""
    homogeneity, completeness, v_measure = homogeneity_completeness_v_measure(labels_true, labels_pred)
    return {
        "accuracy": accuracy(labels_true, labels_pred),
        "v_measure": float(v_measure),
        "homogeneity": float(homogeneity),
        "completeness": float(completeness),
        "adjusted_rand": float(adjusted_rand_score(labels_true, labels_pred)),
    }
