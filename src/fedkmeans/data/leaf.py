"""JSON files of the LEAF benchmark, with the keys `users`, `num_samples` and `user_data`."""

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from fedkmeans._utils.typing import DataArray, IntArray
from fedkmeans.data.datasets import Dataset
from fedkmeans.data.wording import listing, one_line, reading, subject
from fedkmeans.errors import DataError

_KEYS = ("users", "num_samples", "user_data")
_REMEDY = "make it again with LEAF's preprocess.sh"

# Rows (n, m) in single precision and labels (n,) of each user.
_Users: TypeAlias = dict[str, tuple[DataArray, IntArray]]


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
    users = _joined({file: _read_users(file) for file in paths})
    return Dataset(
        name=place.stem,
        X=np.concatenate([x for x, _ in users.values()]),
        y=np.concatenate([y for _, y in users.values()]),
        clients=np.repeat(np.arange(len(users), dtype=np.intp), [len(y) for _, y in users.values()]),
        feature_names=None,
        source=f"LEAF, {len(paths)} file(s) read from {place.name!r}",
        client_names=tuple(users),
    )


def _joined(files: dict[Path, _Users]) -> _Users:
    """Join the users of all files, which must differ, with rows of one length."""
    first, widths = next(iter(files)), {}
    owners: dict[str, Path] = {}
    for file, users in files.items():
        for user, (x, _) in users.items():
            if user in owners:
                raise DataError(
                    f"user {user!r} is in file {str(owners[user])!r} and in {str(file)!r}; "
                    "read train and test folders one at a time"
                )
            owners[user], widths[file] = file, x.shape[1]
        if widths[file] != widths[first]:
            raise DataError(
                f"{subject(file)} has {widths[file]} values per row where {str(first)!r} has "
                f"{widths[first]}; keep one data set per folder"
            )
    return {user: shard for users in files.values() for user, shard in users.items()}


def _read_users(path: Path) -> _Users:
    names, counts, data = _members(path)
    if set(names) != set(data):
        stray = sorted(set(names) ^ set(data))
        raise DataError(f"{subject(path)}: 'users' and 'user_data' differ in {listing(stray)}; {_REMEDY}")
    users = {name: _shard(path, name, data[name], n) for name, n in zip(names, counts, strict=True)}
    if not users:
        raise DataError(f"{subject(path)} has no users; {_REMEDY}")
    width = users[names[0]][0].shape[1]
    for name, (x, _) in users.items():
        if x.shape[1] != width:
            raise DataError(
                f"{subject(path)}, user {name!r}: 'x' has {x.shape[1]} values per row where user "
                f"{names[0]!r} has {width}; {_REMEDY}"
            )
    return users


def _members(path: Path) -> tuple[list[str], list[Any], dict[str, Any]]:
    """Read the values of the three keys."""
    with reading(subject(path), "check the path", OSError):
        content = path.read_bytes()
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:  # invalid JSON, or bytes that are not text
        raise DataError(f"{subject(path)} is not JSON, or truncated: {one_line(error)}; {_REMEDY}") from error
    if not isinstance(document, dict) or any(key not in document for key in _KEYS):
        raise DataError(f"{subject(path)} is no LEAF file: it must have the keys {listing(_KEYS)}; {_REMEDY}")
    users, counts, data = (document[key] for key in _KEYS)
    shapes_fit = isinstance(users, list) and isinstance(counts, list) and isinstance(data, dict)
    if not shapes_fit or not all(isinstance(user, str) for user in users) or len(users) != len(counts):
        raise DataError(
            f"{subject(path)}: 'users' and 'num_samples' must be lists of one length, and 'user_data' "
            f"an object; {_REMEDY}"
        )
    repeated = sorted(user for user, times in Counter(users).items() if times > 1)
    if repeated:
        raise DataError(f"{subject(path)} lists the users {listing(repeated)} more than once; {_REMEDY}")
    return users, counts, data


def _shard(path: Path, user: str, data: Any, count: Any) -> tuple[DataArray, IntArray]:
    where = f"{subject(path)}, user {user!r}"
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
