"""The card of a model as JSON data: made from an estimator, and checked when it is read.

The messages of errors do not name the model; the caller does.
"""

from __future__ import annotations

import csv
import io
import json
import math
import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from typing import Any, NoReturn

import numpy as np

from fedkmeans.data.wording import listing, one_line
from fedkmeans.errors import ModelError
from fedkmeans.registry import ALGORITHMS

FORMAT = "fedkmeans model"
FORMAT_VERSION = 1

# Columns of the history that older models do not have.
_SIZES = ("bytes_sent", "bytes_received")
# Entries that a card must have, by type, containers first; others are allowed and kept.
_FIELDS: dict[Any, tuple[str, ...]] = {
    dict: ("versions", "parameters", "data", "result", "history"),
    list: ("data.clients",),
    str: ("created", "algorithm", "result.stop_reason"),
    int: ("data.n_samples", "data.n_features", "result.n_clusters", "result.n_rounds"),
    bool: ("result.interrupted",),
    list | None: ("data.feature_names",),
    str | None: ("data.dtype",),
    int | None: ("seed",),
    int | float | None: ("result.score_per_sample", "result.score_per_client", "result.inertia"),
}


def describe(
    estimator: Any, algorithm: str, clients: Sequence[Mapping[str, Any]], dtype: str | None
) -> dict[str, Any]:
    """Return the card of a fitted estimator; see :meth:`fedkmeans.model.Model.from_estimator`."""
    from fedkmeans import __version__  # here, as the package itself may import this module

    k, m = estimator.cluster_centers_.shape
    members = [{"name": str(c["name"]), "n_samples": int(c["n_samples"])} for c in clients]
    names = getattr(estimator, "feature_names_in_", None)
    seed = getattr(estimator, "seed_", getattr(estimator, "random_state", None))
    reason = str(getattr(estimator, "stop_reason_", "unknown"))
    # All rounds have the same kernel, which is listed with the result.
    history = {name: column.tolist() for name, column in getattr(estimator, "history_", {}).items()}
    kernels = history.pop("kernel", [])
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {
            "fedkmeans": __version__,
            "numpy": np.__version__,
            "scikit-learn": metadata.version("scikit-learn"),
            "python": platform.python_version(),
        },
        "algorithm": algorithm,
        "parameters": {name: _plain(value) for name, value in sorted(estimator.get_params().items())},
        "seed": int(seed) if isinstance(seed, int | np.integer) else None,
        "data": {
            "clients": members,
            "n_samples": sum(member["n_samples"] for member in members),
            "n_features": m,
            "feature_names": None if names is None else [str(name) for name in names],
            "dtype": dtype,
        },
        "result": {
            "n_clusters": k,
            "n_rounds": int(estimator.n_iter_),
            "stop_reason": reason,
            "score_per_sample": _plain(getattr(estimator, "score_per_sample_", None)),
            "score_per_client": _plain(getattr(estimator, "score_per_client_", None)),
            "inertia": _plain(estimator.inertia_),
            "interrupted": reason == "interrupted",
            **({"kernel": str(kernels[0])} if kernels else {}),
        },
        "history": {name: _plain(column) for name, column in history.items()},
    }


def _plain(value: Any) -> Any:
    """Convert a value for JSON: NaN and infinity become null, a function its name."""
    if isinstance(value, np.ndarray):
        return f"array of shape {value.shape}"
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    return getattr(value, "__name__", type(value).__name__)


def to_json(value: Any, indent: int | None = None, ascii_only: bool = False) -> str:
    """Write JSON without characters that control a terminal."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=ascii_only, indent=indent)
    if text.isascii() and "\x7f" not in text:
        return text  # json escapes all other control characters in ASCII
    # Such characters occur only in strings, where JSON has an escape for each.
    return "".join(c if c == "\n" or c.isprintable() else json.dumps(c)[1:-1] for c in text)


def parse(text: str) -> dict[str, Any]:
    """Read a card from JSON and check its format version."""
    try:
        card = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"the card is not JSON ({error})") from error
    if not isinstance(card, dict) or card.get("format") != FORMAT:
        raise ModelError("the card is not that of a fedkmeans model")
    version = card.get("format_version")
    if type(version) is not int or version < 1:
        raise ModelError(f"the card has no valid format version but {version!r}")
    if version > FORMAT_VERSION:
        raise ModelError(
            f"it has format version {version} and this fedkmeans knows up to {FORMAT_VERSION}, so upgrade "
            "fedkmeans to read it"
        )
    return card


def _refuse_constant(name: str) -> NoReturn:
    raise ModelError(f"the card holds {name}, which is no JSON")


def check(card: Mapping[str, Any], k: int, m: int) -> None:
    """Check that a card is complete and fits centroids of shape (k, m)."""
    for types, paths in _FIELDS.items():
        for path in paths:
            value: Any = card
            for key in path.split("."):
                value = value.get(key, NotImplemented)
            # in Python a bool is an int, but it is not a count
            if not isinstance(value, types) or (isinstance(value, bool) and types is not bool):
                raise ModelError(f"entry {path!r} of the card is missing or of the wrong type")
    data, n_clusters = card["data"], card["result"]["n_clusters"]
    names = data["feature_names"] or []
    if (n_clusters, data["n_features"]) != (k, m):
        raise ModelError(
            f"the card speaks of {n_clusters} centroids of {data['n_features']} columns, and there are "
            f"{k} of {m}"
        )
    asked = card["parameters"].get("n_clusters", k)
    if asked != k:
        raise ModelError(f"the card speaks of n_clusters={asked!r} among the parameters, and there are {k}")
    if not all(isinstance(name, str) for name in names):
        raise ModelError("a column on the card has a name that is no text")
    if twice := _twice(names):
        raise ModelError(f"the card names {twice} twice where {m} different columns are needed")
    if data["feature_names"] is not None and len(names) != m:
        raise ModelError(f"the card should name {m} different columns, and names {len(names)}")
    for client in data["clients"]:
        if not isinstance(client, dict) or not (
            isinstance(client.get("name"), str) and type(client.get("n_samples")) is int
        ):
            raise ModelError("a client on the card has no name or no number of rows")
    _check_history(card["history"])


def _twice(names: Iterable[str]) -> str:
    return listing(name for name, times in Counter(names).items() if times > 1)


def _check_history(history: Mapping[str, Any]) -> None:
    columns = list(history.values())
    if not all(isinstance(column, list) and len(column) == len(columns[0]) for column in columns):
        raise ModelError("the columns of the history differ in length")
    for name, column in history.items():
        if not all(value is None or type(value) in (int, float) for value in column):
            raise ModelError(f"column {name!r} of the history holds something that is no number")
        if name in _SIZES and not all(type(value) is int and value >= 0 for value in column):
            raise ModelError(f"column {name!r} of the history holds something that is no number of bytes")


def check_rounds(card: Mapping[str, Any]) -> None:
    """Refuse an empty history of an algorithm with rounds; only a single file may leave it out."""
    algorithm, n_rounds = ALGORITHMS.get(card["algorithm"]), card["result"]["n_rounds"]
    in_rounds = algorithm is not None and not algorithm.pooled and n_rounds > 0
    if in_rounds and not any(card["history"].values()):
        raise ModelError(f"the history is empty, and the card speaks of {n_rounds} rounds")


def history_to_csv(history: Mapping[str, Sequence[Any]]) -> str:
    """Write the rounds as CSV, one line per round; unknown values stay empty."""
    text = io.StringIO()
    if history:
        rounds = zip(*history.values(), strict=True)
        csv.writer(text, lineterminator="\n").writerows([history, *rounds])
    return text.getvalue()


def history_from_csv(text: str) -> dict[str, list[Any]]:
    """Read the CSV of `history_to_csv`."""
    try:
        header, *rows = list(csv.reader(io.StringIO(text), strict=True)) or [[]]
    except csv.Error as error:
        raise ModelError(f"the history is damaged ({error})") from error
    if twice := _twice(header):
        raise ModelError(f"the history has column {twice} twice")
    if any(len(row) != len(header) for row in rows):
        raise ModelError("the history is damaged, its lines differ in length")
    try:
        return {name: [_number(row[i]) for row in rows] for i, name in enumerate(header)}
    except ValueError as error:
        raise ModelError(f"the history holds something that is no number ({one_line(error)})") from error


def _number(text: str) -> int | float | None:
    if not text:
        return None
    number = int(text) if text.lstrip("-").isdigit() else float(text)
    return number if math.isfinite(number) else None
