"""JSON files of the LEAF benchmark, with the keys `users`, `num_samples` and `user_data`."""

import json
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedkmeans._utils.typing import DataArray, IntArray
from fedkmeans.data.base import Dataset
from fedkmeans.data.wording import listing, one_line
from fedkmeans.errors import DataError

_KEYS = ("users", "num_samples", "user_data")
_REMEDY = "make it again with LEAF's preprocess.sh"


@dataclass(frozen=True)
class LeafFile:
    """One LEAF file: `X` (n, m) in single precision, `y` (n,), and the user number of each row."""

    path: Path
    users: tuple[str, ...]
    X: DataArray
    y: IntArray
    clients: IntArray


def load_leaf(path: str | os.PathLike[str]) -> Dataset:
    """Load the output of LEAF's ``preprocess.sh``: a JSON file, or a folder of them.

    Parameters
    ----------
    path : str or path-like
        A ``.json`` file, or a folder of them; files are read in the order of their names.

    Returns
    -------
    Dataset
        `X` of shape (n_samples, n_features) in single precision; `clients` numbers the users in the
        order of the files, and `client_names` names them.

    Raises
    ------
    DataError
        A file is damaged or inconsistent, or a user is in two files.
    """
    place = Path(path)
    paths = sorted(place.glob("*.json")) if place.is_dir() else [place]
    if not paths:
        raise DataError(
            f"folder {str(place)!r} holds no .json file; give the folder that LEAF wrote its files to"
        )
    files = [read_leaf(file) for file in paths]
    _check_disjoint(files)
    _check_widths(files)
    starts = np.cumsum([0] + [len(file.users) for file in files[:-1]])
    return Dataset(
        name=place.stem,
        X=np.concatenate([file.X for file in files]),
        y=np.concatenate([file.y for file in files]),
        clients=np.concatenate([file.clients + start for file, start in zip(files, starts, strict=True)]),
        feature_names=None,
        source=f"LEAF, {len(files)} file(s) read from {place.name!r}",
        client_names=tuple(user for file in files for user in file.users),
    )


def read_leaf(path: Path) -> LeafFile:
    """Read and check one LEAF file."""
    document = _document(path)
    users, counts = document["users"], document["num_samples"]
    data = document["user_data"]
    if set(users) != set(data):
        stray = sorted(set(users) ^ set(data))
        raise DataError(f"file {str(path)!r}: 'users' and 'user_data' differ in {listing(stray)}; {_REMEDY}")
    shards = [_shard(path, user, data[user], count) for user, count in zip(users, counts, strict=True)]
    if not shards:
        raise DataError(f"file {str(path)!r} has no users; {_REMEDY}")
    width = shards[0][0].shape[1]
    for user, (x, _) in zip(users, shards, strict=True):
        if x.shape[1] != width:
            raise DataError(
                f"file {str(path)!r}, user {user!r}: 'x' has {x.shape[1]} values per row where user "
                f"{users[0]!r} has {width}; {_REMEDY}"
            )
    return LeafFile(
        path=path,
        users=tuple(users),
        X=np.concatenate([x for x, _ in shards]),
        y=np.concatenate([y for _, y in shards]),
        clients=np.repeat(np.arange(len(users), dtype=np.intp), [len(x) for x, _ in shards]),
    )


def _document(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise DataError(f"file {str(path)!r} cannot be read: {one_line(error)}; check the path") from error
    except (ValueError, RecursionError) as error:  # invalid JSON, or bytes that are not text
        raise DataError(
            f"file {str(path)!r} is not JSON, or truncated: {one_line(error)}; {_REMEDY}"
        ) from error
    if not isinstance(document, dict) or any(key not in document for key in _KEYS):
        raise DataError(
            f"file {str(path)!r} is no LEAF file: it must have the keys {listing(_KEYS)}; {_REMEDY}"
        )
    users, counts, data = (document[key] for key in _KEYS)
    shapes_fit = isinstance(users, list) and isinstance(counts, list) and isinstance(data, dict)
    if not shapes_fit or not all(isinstance(user, str) for user in users) or len(users) != len(counts):
        raise DataError(
            f"file {str(path)!r}: 'users' and 'num_samples' must be lists of one length, and 'user_data' "
            f"an object; {_REMEDY}"
        )
    repeated = sorted(user for user, times in Counter(users).items() if times > 1)
    if repeated:
        raise DataError(f"file {str(path)!r} lists the users {listing(repeated)} more than once; {_REMEDY}")
    return document


def _shard(path: Path, user: str, data: Any, count: Any) -> tuple[DataArray, IntArray]:
    where = f"file {str(path)!r}, user {user!r}"
    if not isinstance(data, dict) or "x" not in data or "y" not in data:
        raise DataError(f"{where}: 'user_data' must hold 'x' and 'y'; {_REMEDY}")
    x = _numbers(where, "x", data["x"], 2)
    y = _numbers(where, "y", data["y"], 1)
    if not (len(x) == len(y) == count):
        raise DataError(
            f"{where}: 'x' has {len(x)} rows, 'y' {len(y)} and 'num_samples' says {count}; {_REMEDY}"
        )
    # The checks below report overflows, so NumPy's warnings are not needed.
    with np.errstate(over="ignore", invalid="ignore"):
        whole, single = y.astype(np.intp), x.astype(np.float32)
    if not np.array_equal(y, whole):
        raise DataError(f"{where}: 'y' must hold whole numbers; {_REMEDY}")
    if not np.isfinite(single).all():
        raise DataError(f"{where}: 'x' holds values beyond single precision (3.4e38); {_REMEDY}")
    return single, whole


def _numbers(where: str, key: str, values: Any, n_dimensions: int) -> DataArray:
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError):  # rows of different lengths, or numbers too large for any type
        array = np.asarray(None)
    if array.dtype.kind not in "biuf" or array.ndim != n_dimensions or not array.size:
        shape = {1: "numbers", 2: "rows of numbers, all of one length"}[n_dimensions]
        raise DataError(f"{where}: '{key}' must hold {shape}; {_REMEDY}")
    if not np.isfinite(array).all():
        raise DataError(f"{where}: '{key}' holds NaN or infinite values; {_REMEDY}")
    return array


def _check_disjoint(files: list[LeafFile]) -> None:
    seen: dict[str, Path] = {}
    for file in files:
        for user in file.users:
            if user in seen:
                raise DataError(
                    f"user {user!r} is in file {str(seen[user])!r} and in {str(file.path)!r}; "
                    "read train and test folders one at a time"
                )
            seen[user] = file.path


def _check_widths(files: list[LeafFile]) -> None:
    first = files[0]
    for file in files[1:]:
        if file.X.shape[1] != first.X.shape[1]:
            raise DataError(
                f"file {str(file.path)!r} has {file.X.shape[1]} values per row where {str(first.path)!r} has "
                f"{first.X.shape[1]}; keep one data set per folder"
            )
