"""The algorithms by name, for the command line and for studies."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fedkmeans.algorithms.fit import MemorySetting
from fedkmeans.errors import ParameterError
from fedkmeans.estimators import FKM, PAPER, FederatedKMeans, KFed
from fedkmeans.pooled import PooledKMeans


@dataclass(frozen=True, slots=True)
class Algorithm:
    """An estimator with some of its parameters set, for good or until told otherwise.

    Attributes
    ----------
    title : str
        As tables and figures call it.
    estimator : type
    fixed : dict
        Parameters that make it this algorithm and no other.
    defaults : dict
        Defaults that differ from the estimator's own.
    pooled : bool
        Whether it needs all rows in one place.
    """

    title: str
    estimator: Callable[..., Any]
    fixed: dict[str, Any] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)
    pooled: bool = False

    def parameters(self) -> set[str]:
        """Names of the parameters that may still be chosen."""
        return set(inspect.signature(self.estimator).parameters) - set(self.fixed)


# What an algorithm of the paper cannot have without being another one.
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
        raise ParameterError(f"algorithm must be one of {', '.join(ALGORITHMS)}; got {name!r}.")
    return ALGORITHMS[name]


def algorithm_with(memory: MemorySetting) -> str:
    """Name the algorithm that has such a memory."""
    if memory is None:
        return "wf"
    return "last-word" if isinstance(memory, str) else "forgetting"


def make(name: str, **parameters: Any) -> Any:
    """Make an unfitted estimator by its algorithm's name.

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
            raise ParameterError(
                f"memory={parameters['memory']!r} belongs to another algorithm; use {named!r}."
            )
    unknown = set(parameters) - algorithm.parameters()
    if unknown:
        raise ParameterError(
            f"{', '.join(sorted(unknown))} cannot be set for {name!r} ({algorithm.title}). "
            f"It takes {', '.join(sorted(algorithm.parameters()))}."
        )
    return algorithm.estimator(**{**algorithm.defaults, **parameters, **algorithm.fixed})
