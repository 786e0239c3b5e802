"""The built-in data sets: synthetic, digits, MNIST and FEMNIST."""

import gzip
import math
import os
import random
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from sklearn import datasets as sk_datasets

from fedkmeans._utils.typing import DataArray, IntArray
from fedkmeans.data.wording import listing, one_line, reading, subject
from fedkmeans.errors import DataError, ParameterError

DATA_VARIABLE = "FEDKMEANS_DATA"

_N_OUTLIERS = 100
_N_MNIST = 70_000
# For each variant: its name, the stem of the original files, its first row in OpenML's table, and its size.
_MNIST = {
    "first-10k": ("mnist-10k", "train", 0, 10_000),
    "train": ("mnist", "train", 0, 60_000),
    "test": ("mnist-test", "t10k", 60_000, 10_000),
}
_FEMNIST = {
    "iid": "paper_iid.npz",
    "half-iid": "paper_half_iid.npz",
    "non-iid-part": "paper_non_iid_part.npz",
    "writers": "leaf_writers.npz",
}


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
    X = np.vstack([blobs, outliers])
    y = np.append(labels, np.full(_N_OUTLIERS, 5)).astype(np.intp)
    source = "made as in the DWF k-means paper (scikit-learn make_blobs and uniform outliers)"
    return Dataset("synthetic", X, y, None, ("x0", "x1"), source)


def load_digits() -> Dataset:
    """Load the 8 × 8 digits that come with scikit-learn, scaled to [0, 1].

    Returns
    -------
    Dataset
        `X` of shape (1797, 64) in double precision.
    """
    bunch = sk_datasets.load_digits()
    source = "UCI Optical Recognition of Handwritten Digits, as bundled with scikit-learn"
    y = bunch.target.astype(np.intp)
    return Dataset("digits", bunch.data / 16, y, None, tuple(bunch.feature_names), source)


def load_mnist(variant: str = "first-10k") -> Dataset:
    """Load MNIST, pixels divided by 255.

    The original IDX files, plain or gzipped, are read from the folder ``mnist`` of ``FEDKMEANS_DATA``.
    Without them, scikit-learn downloads the data from OpenML and caches it.

    Parameters
    ----------
    variant : {"first-10k", "train", "test"}
        The first 10,000 training images (the set of the paper's table), all 60,000 or the 10,000
        test images.

    Returns
    -------
    Dataset
        `X` of shape (n_samples, 784) in single precision.
    """
    if variant not in _MNIST:
        raise ParameterError(f"unknown MNIST variant {variant!r}; choose one of {listing(_MNIST)}")
    name, stem, start, size = _MNIST[variant]
    home = data_home()
    local = None if home is None else _mnist_files(home / "mnist", stem)
    if local is None:
        pixels, labels = (values[start : start + size] for values in _mnist_openml())
        source = "OpenML mnist_784 (LeCun, Cortes, Burges)"
    else:
        pixels, labels = (values[:size] for values in local)
        source = "original IDX files (LeCun, Cortes, Burges)"
    return Dataset(name, _unit(pixels), labels.astype(np.intp), None, None, source)


def _mnist_files(folder: Path, stem: str) -> tuple[DataArray, DataArray] | None:
    """Read images and labels from IDX files, or return None if a file does not exist."""
    paths = []
    for kind in ("images-idx3", "labels-idx1"):
        plain = folder / f"{stem}-{kind}-ubyte"
        paths += [path for path in (plain.with_name(f"{plain.name}.gz"), plain) if path.is_file()][:1]
    if len(paths) < 2:
        return None
    images, labels = _read_idx(paths[0], 3), _read_idx(paths[1], 1)
    if len(images) != len(labels):
        raise DataError(
            f"{subject(paths[0])} has {len(images)} images and {str(paths[1])!r} has {len(labels)} "
            "labels; fetch both again"
        )
    return images.reshape(len(images), -1), labels


def _read_idx(path: Path, n_dimensions: int) -> DataArray:
    """Read an IDX file of unsigned bytes and check its length against its header."""
    with reading(subject(path), "fetch it again", OSError, EOFError, zlib.error):
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
    start = 4 + 4 * n_dimensions
    magic = bytes([0, 0, 8, n_dimensions])  # 8 stands for unsigned bytes
    if content[:4] != magic or len(content) < start:
        raise DataError(
            f"{subject(path)} is no IDX file of bytes in {n_dimensions} dimensions; fetch it again"
        )
    shape = struct.unpack(f">{n_dimensions}I", content[4:start])
    if len(content) - start != math.prod(shape):
        raise DataError(
            f"{subject(path)} announces {math.prod(shape)} values and holds {len(content) - start}: "
            "it is truncated or damaged; fetch it again"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def _mnist_openml() -> tuple[DataArray, DataArray]:
    try:
        pixels, labels = sk_datasets.fetch_openml("mnist_784", version=1, return_X_y=True, as_frame=False)
    except (OSError, ValueError) as error:  # OSError without a network, ValueError from OpenML
        raise DataError(
            f"MNIST cannot be fetched from OpenML: {one_line(error)}; put the four IDX files in a folder "
            f"'mnist' and set {DATA_VARIABLE} to the folder above it"
        ) from error
    if len(pixels) != _N_MNIST:
        raise DataError(
            f"OpenML sent {len(pixels)} MNIST images instead of {_N_MNIST}; "
            f"set {DATA_VARIABLE} to use local files"
        )
    return pixels, labels


def load_femnist(distribution: str = "iid") -> Dataset:
    """Load FEMNIST divided among clients, pixels divided by 255 (1 is white paper).

    The files are read from the folder ``femnist`` of ``FEDKMEANS_DATA``. Without them, generate the data
    with LEAF and read it with :func:`fedkmeans.data.load_leaf`.

    Parameters
    ----------
    distribution : {"iid", "half-iid", "non-iid-part", "writers"}
        The paper's IID and half-IID sets, the available part of its non-IID set, or LEAF's clients, one
        per writer.

    Returns
    -------
    Dataset
        `X` of shape (n_samples, 784) in single precision; `clients` is set.
    """
    if distribution not in _FEMNIST:
        raise ParameterError(
            f"unknown FEMNIST distribution {distribution!r}; choose one of {listing(_FEMNIST)}"
        )
    home = data_home()
    path = None if home is None else home / "femnist" / _FEMNIST[distribution]
    if path is None or not path.is_file():
        raise DataError(
            f"file 'femnist/{_FEMNIST[distribution]}' was not found; set {DATA_VARIABLE} to the folder "
            "above it, or make FEMNIST with LEAF (data/femnist: preprocess.sh -s niid --sf 0.05 -k 0 "
            "-t sample) and read its output with load_leaf(folder)"
        )
    damage = (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error)
    with (
        reading(subject(path), "fetch it again", *damage),
        np.load(path, allow_pickle=False) as archive,
    ):
        arrays = {key: archive[key] for key in archive.files}
    pixels, y, clients = _checked_femnist(subject(path), arrays)
    names = tuple(str(name) for name in arrays["names"]) if "names" in arrays else None
    return Dataset(
        f"femnist-{distribution}", _unit(pixels), y, clients, None, "LEAF FEMNIST (NIST SD19)", names
    )


def _checked_femnist(who: str, arrays: dict[str, DataArray]) -> tuple[DataArray, IntArray, IntArray]:
    absent = [key for key in ("X", "y", "client") if key not in arrays]
    if absent:
        raise DataError(f"{who} lacks the arrays {listing(absent)}; fetch it again")
    pixels, y, clients = arrays["X"], arrays["y"], arrays["client"].astype(np.intp)
    if pixels.dtype != np.uint8 or pixels.shape != (len(y), 784) or clients.shape != y.shape:
        raise DataError(f"{who} does not hold one 784-pixel image per label and client; fetch it again")
    if clients.min() < 0 or not np.bincount(clients).all():
        raise DataError(f"{who}: array 'client' must number the clients 0, 1, …; fetch it again")
    return pixels, y.astype(np.intp), clients


def _unit(pixels: DataArray) -> DataArray:
    # Divide directly in single precision: double precision takes eight times the bytes of the pixels.
    scaled: DataArray = np.divide(pixels, np.float32(255), dtype=np.float32, casting="same_kind")
    return scaled


DATASETS: dict[str, Callable[[], Dataset]] = {
    "synthetic": load_synthetic,
    "digits": load_digits,
    "mnist-10k": partial(load_mnist, "first-10k"),
    "mnist": partial(load_mnist, "train"),
    **{f"femnist-{distribution}": partial(load_femnist, distribution) for distribution in _FEMNIST},
}


def load_dataset(name: str) -> Dataset:
    """Load the data set `name`, a key of `DATASETS`."""
    if name not in DATASETS:
        raise ParameterError(f"unknown data set {name!r}; choose one of {listing(DATASETS)}")
    return DATASETS[name]()
