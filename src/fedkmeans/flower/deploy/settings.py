"""The settings of a run on Flower, and their form as Flower's run configuration (numbers and texts)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from fedkmeans import registry
from fedkmeans._utils.checks import PARAMETERS, check_choice, check_integer
from fedkmeans.algorithms.initialization import INITIALIZERS
from fedkmeans.errors import ParameterError
from fedkmeans.flower.transport import WaitPolicy

_OWN = ("n_clusters", "algorithm", "seed", "folder", "min_sites")


@dataclass(frozen=True, slots=True)
class RunSettings:
    """The settings of a run.

    Attributes
    ----------
    n_clusters, algorithm, seed
        As for ``fedkmeans fit``.
    tuning : dict
        Parameters of the estimator that the user set.
    waiting : WaitPolicy
    folder : str
        Folder for journal, progress and model: a path, or a name in the server's folder of runs. If it is
        empty, the name is the number of the run.
    min_sites : int
        Sites that must be connected before a run starts, if the server has no list of sites.
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
        """Return an unfitted estimator with these settings."""
        return registry.make(
            self.algorithm, n_clusters=self.n_clusters, random_state=self.seed, **self.tuning
        )

    @property
    def fingerprint(self) -> str:
        """A digest of all settings that determine the result; the wait policy is not part of it."""
        settings = [self.n_clusters, self.algorithm, self.seed, sorted(self.tuning.items())]
        return hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:32]


def to_run_config(settings: RunSettings) -> dict[str, Any]:
    """Return Flower's run configuration with every key; settings that were not given are empty texts."""
    given = {
        **{name: getattr(settings, name) for name in _OWN},
        "data": "",
        **asdict(settings.waiting),
        **{name: str(settings.tuning.get(name, "")) for name in PARAMETERS},
    }
    # `patience` is a parameter of the estimator and not part of the wait policy.
    return {name.replace("_", "-"): value for name, value in given.items()}


def from_run_config(config: Mapping[str, Any]) -> RunSettings:
    """Read a run configuration; raises `ParameterError` for invalid settings."""
    named = {key.replace("-", "_"): value for key, value in config.items()}
    tuning = {name: _read(named[name]) for name in PARAMETERS if named.get(name, "") != ""}
    waiting = {name: named[name] for name in asdict(WaitPolicy()) if named.get(name, "") != ""}
    own = {"n_clusters": 8, **{name: named[name] for name in _OWN if name in named}}
    own |= {name: str(own[name]) for name in ("algorithm", "folder") if name in own}
    return RunSettings(**own, tuning=tuning, waiting=WaitPolicy(**waiting))


def _read(value: Any) -> Any:
    """Return a parameter from Flower's value: a number, or a text that may be a number."""
    if not isinstance(value, str):
        return value
    if value.lower() == "none":
        return None
    for kind in (int, float):
        with suppress(ValueError):
            return kind(value)
    return value
