"""The algorithms by name, as the command line and studies use them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fedkmeans.algorithms.fit import MemorySetting
from fedkmeans.errors import ParameterError, Setting
from fedkmeans.estimators import FKM, PAPER, FederatedKMeans, KFed
from fedkmeans.pooled import PooledKMeans


@dataclass(frozen=True, slots=True)
class Algorithm:
    """An estimator with some parameters fixed and other defaults.

    Attributes
    ----------
    title : str
        Name in tables and figures.
    estimator : type
    fixed : dict
        Parameters that define the algorithm and cannot be set.
    defaults : dict
        Defaults that differ from those of the estimator.
    pooled : bool
        Whether it needs all rows in one place.
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
    if "memory" in parameters and "memory" in algorithm.parameters():
        named = algorithm_with(parameters["memory"])
        if named != name:
            memory = Setting("memory", parameters["memory"])
            raise ParameterError(memory, f" belongs to another algorithm; use {named!r}.")
    unknown = set(parameters) - algorithm.parameters()
    if unknown:
        raise ParameterError(
            f"{', '.join(sorted(unknown))} cannot be set for {name!r} ({algorithm.title}). "
            f"It takes {', '.join(sorted(algorithm.parameters()))}."
        )
    return algorithm.estimator(**{**algorithm.defaults, **parameters, **algorithm.fixed})
