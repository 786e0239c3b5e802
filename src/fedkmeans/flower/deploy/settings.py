"""What a run on Flower is asked to do, as Flower's run configuration has it: single numbers and texts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from fedkmeans import registry
from fedkmeans._utils.checks import PARAMETERS, check_choice, check_integer
from fedkmeans.algorithms.initialization import INITIALIZERS
from fedkmeans.errors import ParameterError
from fedkmeans.flower.transport import WaitPolicy

_PATIENCE = tuple(part.name for part in fields(WaitPolicy))


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What a run is asked to do.

    Attributes
    ----------
    n_clusters, algorithm, seed
        As for ``fedkmeans fit``.
    tuning : dict
        Parameters of the estimator that were given.
    waiting : Patience
    folder : str
        Where the run keeps its journal, progress and model: a path, or a name among the server's runs;
        empty for one named by its number.
    min_sites : int
        Sites that must be connected before a run begins, where the server has no list of them.
    """

    n_clusters: int
    algorithm: str = "last-word"
    seed: int = 0
    tuning: Mapping[str, Any] = field(default_factory=dict)
    waiting: WaitPolicy = field(default_factory=WaitPolicy)
    folder: str = ""
    min_sites: int = 1

    def __post_init__(self) -> None:
        check_integer("n-clusters", self.n_clusters)
        if check_integer("seed", self.seed, least=0) >= 2**63:
            raise ParameterError(
                f"must be below 2**63, Flower's largest number, got {self.seed}", parameter="seed"
            )
        check_integer("min-sites", self.min_sites)
        if registry.find_algorithm(self.algorithm).pooled:
            raise ParameterError(
                f"{self.algorithm!r} needs all rows in one place; choose a federated algorithm."
            )
        if "init" in self.tuning:
            check_choice("init", self.tuning["init"], INITIALIZERS)
        self.estimator().check_parameters()

    def estimator(self) -> Any:
        """An unfitted estimator that does it."""
        return registry.make(
            self.algorithm, n_clusters=self.n_clusters, random_state=self.seed, **dict(self.tuning)
        )

    @property
    def fingerprint(self) -> str:
        """A text that differs where a run would; how long to wait for whom does not change what is right."""
        settings = [self.n_clusters, self.algorithm, self.seed, sorted(self.tuning.items())]
        return hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:32]


def to_run_config(settings: RunSettings) -> dict[str, Any]:
    """Flower's run configuration for these settings: every key, the empty text for what was not given."""
    given = {
        "n_clusters": settings.n_clusters,
        "algorithm": settings.algorithm,
        "seed": settings.seed,
        "folder": settings.folder,
        "min_sites": settings.min_sites,
        "data": "",
        **{name: getattr(settings.waiting, name) for name in _PATIENCE},
        **{name: _as_text(settings.tuning.get(name, "")) for name in PARAMETERS},
    }
    # The estimator's patience is another thing than ours, and keeps its name.
    return {name.replace("_", "-"): value for name, value in given.items()}


def from_run_config(config: Mapping[str, Any]) -> RunSettings:
    """Read a run configuration; raises `ParameterError` for what cannot be."""
    named = {key.replace("-", "_"): value for key, value in config.items()}
    tuning = {name: _read(name, named[name]) for name in PARAMETERS if named.get(name, "") != ""}
    waiting = {name: named[name] for name in _PATIENCE if named.get(name, "") != ""}
    return RunSettings(
        n_clusters=named.get("n_clusters", 8),
        algorithm=str(named.get("algorithm", "last-word")),
        seed=named.get("seed", 0),
        tuning=tuning,
        waiting=WaitPolicy(**waiting),
        folder=str(named.get("folder", "")),
        min_sites=named.get("min_sites", 1),
    )


def _as_text(value: Any) -> Any:
    return "none" if value is None else str(value) if not isinstance(value, str) else value


def _read(name: str, value: Any) -> Any:
    """A parameter from what Flower passes on: a number, or a text that may be one."""
    if not isinstance(value, str):
        return value
    if value.lower() == "none":
        return None
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value
