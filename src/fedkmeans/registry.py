"""The algorithms by name, as the command line and studies use them, and the pooled baseline."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from sklearn.cluster import KMeans

from fedkmeans._utils.checks import check_integer, check_real
from fedkmeans.algorithms.fit import MemorySetting
from fedkmeans.errors import ParameterError, Setting
from fedkmeans.estimators import FKM, PAPER, FederatedKMeans, KFed


class PooledKMeans(KMeans):  # type: ignore[misc]
    """scikit-learn's k-means, which sees all rows at once and ignores whose they are.

    Parameters
    ----------
    n_clusters : int, default=8
    n_init, max_iter, tol
        As in scikit-learn (where `tol` is relative to the spread of the data), with the paper's
        settings as defaults: 1, 10000 and 1e-8.
    random_state : int, RandomState or None, default=None

    Attributes
    ----------
    See :class:`sklearn.cluster.KMeans`, and `score_per_sample_`, the paper's score.
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        n_init: int = 1,
        max_iter: int = 10_000,
        tol: float = 1e-8,
        random_state: Any = None,
    ) -> None:
        super().__init__(n_clusters, n_init=n_init, max_iter=max_iter, tol=tol, random_state=random_state)

    def check_parameters(self) -> None:
        """Raise if a parameter is invalid, before any data is there."""
        for name in ("n_clusters", "n_init", "max_iter"):
            check_integer(name, getattr(self, name))
        check_real("tol", self.tol, low=0, high=float("inf"))

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, clients: Any = None) -> Self:
        """Fit on all rows; `clients` is accepted, so that algorithms can be compared, and ignored."""
        super().fit(X, y, sample_weight=sample_weight)
        weight = np.broadcast_to(1.0 if sample_weight is None else sample_weight, self.labels_.shape)
        self.score_per_sample_ = float(self.inertia_ / weight.sum())
        self.stop_reason_ = "max_rounds" if self.n_iter_ >= self.max_iter else "tol"
        return self


@dataclass(frozen=True, slots=True)
class Algorithm:
    """An estimator with some parameters fixed and other defaults.

    `title` is its name in tables and figures. The parameters in `fixed` define the algorithm and cannot be
    set; `defaults` differ from those of the estimator. A `pooled` algorithm needs all rows in one place.
    """

    title: str
    estimator: Callable[..., Any]
    fixed: dict[str, Any] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)
    pooled: bool = False

    def parameters(self) -> set[str]:
        """Return the names of the parameters that can be set."""
        return set(inspect.signature(self.estimator).parameters) - set(self.fixed)


# The algorithms of the paper have no memory.
_NO_MEMORY: dict[str, Any] = {"memory": None, "tol_score": 0.0}

ALGORITHMS: dict[str, Algorithm] = {
    "last-word": Algorithm("Last-word k-means", FederatedKMeans),
    "forgetting": Algorithm("Forgetting k-means", FederatedKMeans, defaults={"memory": 0.98}),
    "dwf": Algorithm("DWF k-means", FederatedKMeans, {"weighting": "dynamic", **_NO_MEMORY}, PAPER),
    "ewf": Algorithm("EWF k-means", FederatedKMeans, {"weighting": "equal", **_NO_MEMORY}, PAPER),
    "wf": Algorithm("WF k-means", FederatedKMeans, _NO_MEMORY, PAPER),
    "kfed": Algorithm("k-FED", KFed, {"variant": "paper"}),
    "kfed-published": Algorithm("k-FED (published)", KFed, {"variant": "published"}),
    "fkm": Algorithm("FKM", FKM),
    "k-means": Algorithm("k-means", PooledKMeans, pooled=True),
}


def find_algorithm(name: str) -> Algorithm:
    """Return the algorithm of that name."""
    if name not in ALGORITHMS:
        raise ParameterError(f"must be one of {', '.join(ALGORITHMS)}; got {name!r}.", parameter="algorithm")
    return ALGORITHMS[name]


def algorithm_with(memory: MemorySetting) -> str:
    """Return the name of the algorithm with this memory."""
    if memory is None:
        return "wf"
    return "last-word" if isinstance(memory, str) else "forgetting"


def make(name: str, **parameters: Any) -> Any:
    """Return an unfitted estimator for the algorithm of that name.

    Examples
    --------
    >>> from fedkmeans.registry import make
    >>> make("ewf", n_clusters=3).weighting
    'equal'
    """
    algorithm = find_algorithm(name)
    allowed = algorithm.parameters()
    if "memory" in allowed & set(parameters):
        memory = parameters["memory"]
        if (other := algorithm_with(memory)) != name:
            raise ParameterError(Setting("memory", memory), f" belongs to another algorithm; use {other!r}.")
    if unknown := set(parameters) - allowed:
        raise ParameterError(
            f"{', '.join(sorted(unknown))} cannot be set for {name!r} ({algorithm.title}). "
            f"It takes {', '.join(sorted(allowed))}."
        )
    return algorithm.estimator(**{**algorithm.defaults, **parameters, **algorithm.fixed})
