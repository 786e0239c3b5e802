"""Data sets by name."""

from collections.abc import Callable
from functools import partial

from fedkmeans.data.base import Dataset
from fedkmeans.data.images import load_femnist, load_mnist
from fedkmeans.data.synthetic import load_digits, load_synthetic
from fedkmeans.data.wording import listing
from fedkmeans.errors import ParameterError

DATASETS: dict[str, Callable[[], Dataset]] = {
    "synthetic": load_synthetic,
    "digits": load_digits,
    "mnist-10k": partial(load_mnist, "first-10k"),
    "mnist": partial(load_mnist, "train"),
    "femnist-iid": partial(load_femnist, "iid"),
    "femnist-half-iid": partial(load_femnist, "half-iid"),
    "femnist-non-iid-part": partial(load_femnist, "non-iid-part"),
    "femnist-writers": partial(load_femnist, "writers"),
}


def load_dataset(name: str) -> Dataset:
    """Load the data set `name`, a key of `DATASETS`."""
    if name not in DATASETS:
        raise ParameterError(f"unknown data set {name!r}; choose one of {listing(DATASETS)}")
    return DATASETS[name]()
