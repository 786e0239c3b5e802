"""Small data sets that need no download: the paper's synthetic set, and scikit-learn's digits."""

import random

import numpy as np
from sklearn import datasets as sk_datasets

from fedkmeans.data.base import Dataset

_N_OUTLIERS = 100


def load_synthetic() -> Dataset:
    """Generate the paper's synthetic set: five blobs of 2,000 points each and 100 outliers.

    Returns
    -------
    Dataset
        `X` of shape (10100, 2) in double precision; the outliers come last, with label 5.
    """
    blobs, labels = sk_datasets.make_blobs(
        10_000, centers=5, cluster_std=0.2, center_box=(-1, 1), random_state=18042023
    )
    # The paper draws its outliers with Python's own generator; another one gives other data.
    generator = random.Random(1)
    outliers = np.array([[2 * generator.random() - 1 for _ in range(2)] for _ in range(_N_OUTLIERS)])
    return Dataset(
        name="synthetic",
        X=np.vstack([blobs, outliers]),
        y=np.append(labels, np.full(_N_OUTLIERS, 5)).astype(np.intp),
        clients=None,
        feature_names=("x0", "x1"),
        source="made as in the DWF k-means paper (scikit-learn make_blobs and uniform outliers)",
    )


def load_digits() -> Dataset:
    """Load the 8 × 8 digits that come with scikit-learn, scaled to [0, 1].

    Returns
    -------
    Dataset
        `X` of shape (1797, 64) in double precision.
    """
    bunch = sk_datasets.load_digits()
    return Dataset(
        name="digits",
        X=bunch.data / 16,
        y=bunch.target.astype(np.intp),
        clients=None,
        feature_names=tuple(bunch.feature_names),
        source="UCI Optical Recognition of Handwritten Digits, as bundled with scikit-learn",
    )
