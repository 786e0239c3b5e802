"""The class of data sets, and the folder with real data."""

import os
from dataclasses import dataclass
from pathlib import Path

from fedkmeans._utils.typing import DataArray, IntArray
from fedkmeans.errors import DataError

DATA_VARIABLE = "FEDKMEANS_DATA"


@dataclass(frozen=True)
class Dataset:
    """A labelled data set, possibly with its clients.

    Attributes
    ----------
    name : str
    X : ndarray of shape (n_samples, n_features)
    y : ndarray of shape (n_samples,)
        True labels, 0 upwards.
    clients : ndarray of shape (n_samples,) or None
        Client number of each row, if the data has its own clients.
    feature_names : tuple of str, or None
    source : str
        Where the data comes from.
    client_names : tuple of str, or None
        Name of each client number, if the clients have names.
    """

    name: str
    X: DataArray
    y: IntArray
    clients: IntArray | None
    feature_names: tuple[str, ...] | None
    source: str
    client_names: tuple[str, ...] | None = None


def data_home() -> Path | None:
    """Return the folder in the environment variable ``FEDKMEANS_DATA``, or None if it is not set."""
    value = os.environ.get(DATA_VARIABLE)
    if not value:
        return None
    home = Path(value)
    if not home.is_dir():
        raise DataError(f"{DATA_VARIABLE} names {value!r}, which is not a folder; correct it or unset it")
    return home
