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


def _malformed(who: str, what: str) -> DataError:
    return DataError(f"{who}{what}; make it again with LEAF's preprocess.sh")


def _read_users(path: Path) -> _Users:
    who = subject(path)
    names, counts, data = _members(path, who)
    if set(names) != set(data):
        stray = sorted(set(names) ^ set(data))
        raise _malformed(who, f": 'users' and 'user_data' differ in {listing(stray)}")
    if not names:
        raise _malformed(who, " has no users")
    users: _Users = {}
    for name, n in zip(names, counts, strict=True):
        users[name] = _shard(f"{who}, user {name!r}", data[name], n)
    width = users[names[0]][0].shape[1]
    for name, (x, _) in users.items():
        if x.shape[1] != width:
            fewer = f"{x.shape[1]} values per row where user {names[0]!r} has {width}"
            raise _malformed(who, f", user {name!r}: 'x' has {fewer}")
    return users


def _members(path: Path, who: str) -> tuple[list[str], list[Any], dict[str, Any]]:
    """Read the values of the three keys."""
    with reading(who, "check the path", OSError):
        content = path.read_bytes()
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:  # invalid JSON, or bytes that are not text
        raise _malformed(who, f" is not JSON, or truncated: {one_line(error)}") from error
    if not isinstance(document, dict) or any(key not in document for key in _KEYS):
        raise _malformed(who, f" is no LEAF file: it must have the keys {listing(_KEYS)}")
    users, counts, data = (document[key] for key in _KEYS)
    shapes_fit = isinstance(users, list) and isinstance(counts, list) and isinstance(data, dict)
    if not shapes_fit or not all(isinstance(user, str) for user in users) or len(users) != len(counts):
        lists = "'users' and 'num_samples' must be lists of one length"
        raise _malformed(who, f": {lists}, and 'user_data' an object")
    repeated = sorted(user for user, times in Counter(users).items() if times > 1)
    if repeated:
        raise _malformed(who, f" lists the users {listing(repeated)} more than once")
    return users, counts, data


def _shard(who: str, data: Any, count: Any) -> tuple[DataArray, IntArray]:
    if not isinstance(data, dict) or "x" not in data or "y" not in data:
        raise _malformed(who, ": 'user_data' must hold 'x' and 'y'")
    x = _numbers(who, "x", data["x"], 2)
    y = _numbers(who, "y", data["y"], 1)
    if not (len(x) == len(y) == count):
        raise _malformed(who, f": 'x' has {len(x)} rows, 'y' {len(y)} and 'num_samples' says {count}")
    # The checks below report overflows, so NumPy's warnings are not needed.
    with np.errstate(over="ignore", invalid="ignore"):
        whole, single = y.astype(np.intp), x.astype(np.float32)
    if not np.array_equal(y, whole):
        raise _malformed(who, ": 'y' must hold whole numbers")
    if not np.isfinite(single).all():
        raise _malformed(who, ": 'x' holds values beyond single precision (3.4e38)")
    return single, whole


def _numbers(who: str, key: str, values: Any, n_dimensions: int) -> DataArray:
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError):  # rows of different lengths, or numbers too large for any type
        array = np.asarray(None)
    if array.dtype.kind not in "biuf" or array.ndim != n_dimensions or not array.size:
        shape = {1: "numbers", 2: "rows of numbers, all of one length"}[n_dimensions]
        raise _malformed(who, f": '{key}' must hold {shape}")
    if not np.isfinite(array).all():
        raise _malformed(who, f": '{key}' holds NaN or infinite values")
    return array
