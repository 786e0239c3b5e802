"""A saved model: the centroids, and a card with their origin. Nothing is unpickled."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_safetensors

from fedkmeans import model_card
from fedkmeans._utils.atomic_io import atomic_folder, atomic_path
from fedkmeans._utils.typing import FloatArray, IntArray
from fedkmeans.data.wording import listing, one_line
from fedkmeans.errors import ModelError
from fedkmeans.kernels.reference.distances import distances
from fedkmeans.kernels.reference.lloyd import assign
from fedkmeans.kernels.sparse import SparseRows, Table, as_table

FILE_SUFFIX = ".safetensors"
CENTROIDS_FILE, CARD_FILE, HISTORY_FILE = "centroids.safetensors", "card.json", "history.csv"

# A card takes kilobytes, a history tens of bytes per round; larger files are not from this package.
_LARGEST_CARD = 64 * 2**20
_LARGEST_HISTORY = 2**30


@dataclass(frozen=True, eq=False)
class Model:
    """Centroids with the names of their columns, and a card.

    Attributes
    ----------
    centroids : ndarray of float64, shape (k, m)
    feature_names : tuple of str, or None
        Names of the m columns, where the data had names.
    card : dict
        JSON data: format version, versions of software, time, algorithm, parameters, seed, clients and
        their numbers of rows, result, and the rounds as lists under ``history``.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkmeans import FederatedKMeans
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> fitted = FederatedKMeans(2, random_state=0).fit(X)
    >>> clients = [{"name": "all", "n_samples": 60}]
    >>> model = Model.from_estimator(fitted, algorithm="last-word", clients=clients)
    >>> model.predict(X[:3]).shape
    (3,)
    """

    centroids: FloatArray
    feature_names: tuple[str, ...] | None
    card: dict[str, Any]

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, algorithm: str, clients: Sequence[Mapping[str, Any]], dtype: str | None = None
    ) -> Self:
        """Return the model of a fitted estimator.

        Parameters
        ----------
        estimator : fitted estimator
            Of this package, or scikit-learn's KMeans.
        algorithm : str
            Its name in `fedkmeans.registry`.
        clients : sequence of mappings with ``name`` and ``n_samples``
        dtype : str, optional
            Type of the clustered data.
        """
        centroids = np.array(estimator.cluster_centers_, dtype=np.float64)
        card = model_card.describe(estimator, algorithm, clients, dtype)
        return cls._checked(centroids, card)  # a saved model can always be read again

    @classmethod
    def _checked(cls, centroids: FloatArray, card: dict[str, Any]) -> Self:
        model_card.check(card, *centroids.shape)
        names = card["data"]["feature_names"]
        return cls(centroids, None if names is None else tuple(names), card)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model atomically; an older model at `path` is replaced.

        Parameters
        ----------
        path : str or path-like
            With the suffix ``.safetensors`` one file, else a folder with the centroids
            (``centroids.safetensors``), the card (``card.json``) and the rounds (``history.csv``). A
            ModelError or DataError is raised if something else is there or it cannot be written.
        """
        check_destination(path)
        tensors = {"centroids": np.ascontiguousarray(self.centroids, dtype="<f8")}
        card = dict(self.card)
        try:
            if Path(path).suffix.lower() == FILE_SUFFIX:
                with atomic_path(path) as file:
                    file.write_bytes(to_safetensors(tensors, metadata={"card": _short_card(card)}))
            else:
                with atomic_folder(path) as folder:
                    history = model_card.history_to_csv(card.pop("history"))
                    (folder / HISTORY_FILE).write_text(history, encoding="utf-8")
                    text = model_card.to_json(card, indent=2) + "\n"
                    (folder / CARD_FILE).write_text(text, encoding="utf-8")
                    (folder / CENTROIDS_FILE).write_bytes(to_safetensors(tensors))
        except OSError as error:
            # The path in the error is that of a temporary file.
            cause = error.strerror or one_line(error)
            raise ModelError(f"Model {str(path)!r} cannot be written: {cause}; {_PLACE}") from error

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a model; raise ModelError if there is none, it is damaged, or a newer version made it."""
        place = Path(path)
        if not place.exists():
            raise ModelError(
                f"Model {str(path)!r} does not exist; check the path, or make one with fedkmeans fit."
            )
        if place.is_file() and place.suffix.lower() != FILE_SUFFIX:
            raise ModelError(
                f"{str(path)!r} is no model; give a folder or NAME{FILE_SUFFIX} that fit has saved."
            )
        try:
            if place.is_dir():
                centroids, _ = _read_tensors(place / CENTROIDS_FILE)
                card = model_card.parse(_read_text(place / CARD_FILE, _LARGEST_CARD))
                rounds = _read_text(place / HISTORY_FILE, _LARGEST_HISTORY)
                card["history"] = model_card.history_from_csv(rounds)
                model = cls._checked(centroids, card)
                model_card.check_rounds(card)
                return model
            centroids, notes = _read_tensors(place)
            if "card" not in notes:
                raise ModelError("it holds no card, so fedkmeans did not write it")
            return cls._checked(centroids, model_card.parse(notes["card"]))
        except (ModelError, OSError) as error:
            raise ModelError(
                f"Model {str(place)!r} cannot be used: {one_line(error)}; make it again with fedkmeans fit, "
                "or take a fresh copy."
            ) from error

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the m columns; x0, x1, … where there are none, as for files without names."""
        return self.feature_names or tuple(f"x{i}" for i in range(self.centroids.shape[1]))

    def check_columns(self, names: Sequence[str], *, who: str = "The data") -> tuple[str, ...]:
        """Raise ModelError unless all columns of the model are among `names`; return the other names."""
        wanted = self.column_names
        missing = [name for name in wanted if name not in names]
        extra = tuple(name for name in names if name not in wanted)
        if missing:
            instead = f", and has {listing(extra)} which the model does not know" if extra else ""
            raise ModelError(
                f"{who} lacks column(s) {listing(missing)} of the model{instead}; "
                "give it the columns with which the model was fitted."
            )
        return extra

    def predict(self, X: Any) -> IntArray:
        """Return the label of the nearest centroid for each row of `X` (n, m), or of a data frame."""
        return assign(self._matrix(X), self.centroids)

    def distances(self, X: Any) -> FloatArray:
        """Return the distance of each row of `X` (n, m) to each centroid, shape (n, k)."""
        return distances(self._matrix(X), self.centroids)

    def _matrix(self, X: Any) -> Table:
        if self.feature_names is not None and hasattr(X, "columns"):
            self.check_columns([str(name) for name in X.columns])
            X = X[list(self.feature_names)]
        matrix = as_table(X)
        m = self.centroids.shape[1]
        if matrix.ndim != 2 or matrix.shape[1] != m or matrix.dtype.kind not in "fiub":
            raise ModelError(
                f"The model has {m} columns of numbers, the data is of shape {matrix.shape} and dtype "
                f"{matrix.dtype}; give it the columns with which the model was fitted."
            )
        if isinstance(matrix, SparseRows):
            bad = matrix.indices[matrix.stored][~np.isfinite(matrix.data[matrix.stored])]
        else:
            bad = np.flatnonzero(~np.isfinite(matrix).all(axis=0))
        if len(bad):
            column = int(bad.min())
            name = column if self.feature_names is None else repr(self.feature_names[column])
            raise ModelError(
                f"Column {name} has missing or infinite values; drop these rows or fill them in."
            )
        return matrix


_PLACE = "choose a place in an existing folder that you may write to."


def is_model(path: str | os.PathLike[str]) -> bool:
    """Return whether there is a model at `path`; it may be damaged."""
    place = Path(path)
    return any((place / name).is_file() for name in (CARD_FILE, CENTROIDS_FILE)) or (
        place.is_file() and place.suffix.lower() == FILE_SUFFIX
    )


def check_destination(path: str | os.PathLike[str]) -> None:
    """Raise unless there is nothing at `path`, an empty folder or a model, which `save` may replace."""
    place = Path(path)
    try:
        with tempfile.TemporaryFile(dir=place.resolve().parent):
            pass
    except OSError as error:
        raise ModelError(
            f"A model cannot be written at {str(path)!r}: {error.strerror or one_line(error)}; {_PLACE}"
        ) from error
    if not place.exists():
        return
    if place.is_dir():
        others = sorted({file.name for file in place.iterdir()} - {CENTROIDS_FILE, CARD_FILE, HISTORY_FILE})
        if others or place.suffix.lower() == FILE_SUFFIX:
            what = f"holds {listing(others, 3)}" if others else "is a folder with the suffix of a file"
            raise ModelError(f"{str(path)!r} {what} and would be lost; choose another place for the model.")
        if not any(place.iterdir()):
            return
    try:
        Model.load(place)
    except ModelError as error:
        raise ModelError(
            f"{str(path)!r} exists and is no model that can be read; remove it yourself, or choose another "
            "place for the model."
        ) from error


def _short_card(card: dict[str, Any]) -> str:
    """Return the card for a single file, whose header has a limited size."""
    text = model_card.to_json(card)
    if len(text.encode()) <= _LARGEST_CARD:
        return text
    warnings.warn(
        "The history is too long for a model in one file and is left out; save the model as a folder "
        "(a path without .safetensors) to keep it.",
        stacklevel=3,
    )
    return model_card.to_json({**card, "history": {}})


def _read_text(file: Path, largest: int) -> str:
    if not file.is_file():
        raise ModelError(f"{file.name} is missing")
    if file.stat().st_size > largest:
        raise ModelError(f"{file.name} is larger than {largest // 2**20} MB")
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ModelError(f"{file.name} is not UTF-8 text") from error


def _read_tensors(file: Path) -> tuple[FloatArray, dict[str, str]]:
    """Read the centroids (k, m) and their metadata; the shape is checked before memory is allocated."""
    if not file.is_file():
        raise ModelError(f"{file.name} is missing")
    try:
        with safe_open(file, framework="numpy") as tensors:
            if list(tensors.keys()) != ["centroids"]:
                raise ModelError(f"{file.name} should hold centroids and nothing else")
            header = tensors.get_slice("centroids")
            shape, dtype = tuple(header.get_shape()), header.get_dtype()
            if dtype != "F64" or len(shape) != 2 or 0 in shape:
                raise ModelError(
                    f"the centroids should be a table in double precision (F64), not {dtype} of shape {shape}"
                )
            centroids = np.array(tensors.get_tensor("centroids"), dtype=np.float64)
            notes = dict(tensors.metadata() or {})
    except SafetensorError as error:
        raise ModelError(f"{file.name} is damaged ({one_line(error)})") from error
    if not np.isfinite(centroids).all():
        raise ModelError("the centroids hold missing or infinite values")
    return centroids, notes
