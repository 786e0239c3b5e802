"""MNIST and FEMNIST, from local files or, for MNIST, from OpenML."""

import zipfile
import zlib
from pathlib import Path

import numpy as np
from sklearn import datasets as sk_datasets

from fedkmeans._utils.typing import DataArray, IntArray
from fedkmeans.data.base import DATA_VARIABLE, Dataset, data_home
from fedkmeans.data.idx import find_idx, read_idx
from fedkmeans.data.wording import listing, one_line
from fedkmeans.errors import DataError, ParameterError

_N_TRAIN = 60_000
_N_ALL = 70_000

# For each variant: its name, the stem of the original files, the rows of these files, and the rows of
# OpenML's table. The first 60,000 rows of that table are the training set.
_MNIST: dict[str, tuple[str, str, slice, slice]] = {
    "first-10k": ("mnist-10k", "train", slice(0, 10_000), slice(0, 10_000)),
    "train": ("mnist", "train", slice(None), slice(0, _N_TRAIN)),
    "test": ("mnist-test", "t10k", slice(None), slice(_N_TRAIN, _N_ALL)),
}

_FEMNIST: dict[str, str] = {
    "iid": "paper_iid.npz",
    "half-iid": "paper_half_iid.npz",
    "non-iid-part": "paper_non_iid_part.npz",
    "writers": "leaf_writers.npz",
}


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
    name, stem, rows, openml_rows = _MNIST[variant]
    home = data_home()
    local = None if home is None else _mnist_files(home / "mnist", stem)
    if local is None:
        pixels, labels = _mnist_openml(openml_rows)
        source = "OpenML mnist_784 (LeCun, Cortes, Burges)"
    else:
        pixels, labels = local[0][rows], local[1][rows]
        source = "original IDX files (LeCun, Cortes, Burges)"
    return Dataset(name, _unit(pixels), labels.astype(np.intp), None, None, source)


def _mnist_files(folder: Path, stem: str) -> tuple[DataArray, DataArray] | None:
    image_path = find_idx(folder, f"{stem}-images-idx3-ubyte")
    label_path = find_idx(folder, f"{stem}-labels-idx1-ubyte")
    if image_path is None or label_path is None:
        return None
    images, labels = read_idx(image_path, 3), read_idx(label_path, 1)
    if len(images) != len(labels):
        raise DataError(
            f"file {str(image_path)!r} has {len(images)} images and {str(label_path)!r} has {len(labels)} "
            "labels; fetch both again"
        )
    return images.reshape(len(images), -1), labels


def _mnist_openml(rows: slice) -> tuple[DataArray, DataArray]:
    try:
        pixels, labels = sk_datasets.fetch_openml("mnist_784", version=1, return_X_y=True, as_frame=False)
    except (OSError, ValueError) as error:  # OSError without a network, ValueError from OpenML
        raise DataError(
            f"MNIST cannot be fetched from OpenML: {one_line(error)}; put the four IDX files in a folder "
            f"'mnist' and set {DATA_VARIABLE} to the folder above it"
        ) from error
    if len(pixels) != _N_ALL:
        raise DataError(
            f"OpenML sent {len(pixels)} MNIST images instead of {_N_ALL}; "
            f"set {DATA_VARIABLE} to use local files"
        )
    return pixels[rows], labels[rows]


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
    arrays = _read_npz(path)
    pixels, y, clients = _checked_femnist(path, arrays)
    names = tuple(str(name) for name in arrays["names"]) if "names" in arrays else None
    return Dataset(
        f"femnist-{distribution}", _unit(pixels), y, clients, None, "LEAF FEMNIST (NIST SD19)", names
    )


def _read_npz(path: Path) -> dict[str, DataArray]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"file {str(path)!r} cannot be read: {one_line(error)}; fetch it again") from error


def _checked_femnist(path: Path, arrays: dict[str, DataArray]) -> tuple[DataArray, IntArray, IntArray]:
    absent = [key for key in ("X", "y", "client") if key not in arrays]
    if absent:
        raise DataError(f"file {str(path)!r} lacks the arrays {listing(absent)}; fetch it again")
    pixels, y, clients = arrays["X"], arrays["y"], arrays["client"].astype(np.intp)
    if pixels.dtype != np.uint8 or pixels.shape != (len(y), 784) or clients.shape != y.shape:
        raise DataError(
            f"file {str(path)!r} does not hold one 784-pixel image per label and client; fetch it again"
        )
    if clients.min() < 0 or not np.bincount(clients).all():
        raise DataError(f"file {str(path)!r}: array 'client' must number the clients 0, 1, …; fetch it again")
    return pixels, y.astype(np.intp), clients


def _unit(pixels: DataArray) -> DataArray:
    # Divide directly in single precision: double precision takes eight times the bytes of the pixels.
    scaled: DataArray = np.divide(pixels, np.float32(255), dtype=np.float32, casting="same_kind")
    return scaled
