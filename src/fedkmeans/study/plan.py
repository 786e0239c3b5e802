"""The plan of a study: data, distributions, algorithms, number of runs."""

from __future__ import annotations

import runpy
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedkmeans.errors import StudyError
from fedkmeans.registry import find_algorithm


@dataclass(frozen=True, slots=True)
class Distribution:
    """How rows are distributed among clients; the rule is None for data with clients of its own."""

    name: str
    rule: str | None = None
    options: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class DataPlan:
    """One data set of a study; hashable.

    Attributes
    ----------
    name, title : str
        Its name in records and in tables; data sets with the same title share a table.
    k : int
        Number of clusters.
    distributions : tuple of Distribution
    load : str or None
        Name of a built-in data set, or None if there are files.
    files : tuple of str
        Files and folders, relative to the folder of the plan.
    reading : tuple of (str, value)
        Keywords of `fedkmeans.data.read_clients` for the files.
    paper : str or None
        The data set of the paper to compare with, one of `PAPER_DATA`.
    """

    name: str
    title: str
    k: int
    distributions: tuple[Distribution, ...]
    load: str | None = None
    files: tuple[str, ...] = ()
    reading: tuple[tuple[str, Any], ...] = ()
    paper: str | None = None

    def find_distribution(self, name: str | None) -> Distribution:
        """Return the distribution of that name."""
        return next(one for one in self.distributions if one.name == name)


@dataclass(frozen=True, slots=True)
class AlgorithmPlan:
    """One algorithm of a study: its name there, its name in the registry, and its parameters."""

    name: str
    title: str
    algorithm: str
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_pooled(self) -> bool:
        """Whether all rows are in one place, so that their distribution does not matter."""
        return find_algorithm(self.algorithm).pooled


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole study.

    Attributes
    ----------
    name, title : str
    folder : pathlib.Path
        Folder of the plan's file; data files and rules are relative to it.
    seed, runs, n_clients : int
    clients_per_round : tuple of int
    data : tuple of DataPlan
    algorithms : tuple of AlgorithmPlan
    min_cluster_size : int
        Rows that a site requires before it sends their mean, see `SitePolicy`.
    reference : str or None
        Name of the algorithm with which all scores are compared, run by run. If it takes rounds, its
        runs with the most clients per round are meant.
    within : float
        Percentage above the reference that counts as near it.
    curves : int
        Number of runs that record how their score falls.
    """

    name: str
    title: str
    folder: Path
    seed: int
    runs: int
    n_clients: int
    clients_per_round: tuple[int, ...]
    data: tuple[DataPlan, ...]
    algorithms: tuple[AlgorithmPlan, ...]
    min_cluster_size: int = 2
    reference: str | None = None
    within: float = 0.5
    curves: int = 5

    def names(self) -> dict[str, list[str]]:
        """Return the names of data sets, distributions and algorithms, each once, in the plan's order."""
        distributions = [one.name for data in self.data for one in data.distributions]
        return {
            "data": [data.name for data in self.data],
            "distribution": list(dict.fromkeys(distributions)),
            "algorithm": [algorithm.name for algorithm in self.algorithms],
        }

    def find_data(self, name: str) -> DataPlan:
        """Return the data set of that name."""
        return next(data for data in self.data if data.name == name)

    def find_algorithm(self, name: str) -> AlgorithmPlan:
        """Return the algorithm of that name."""
        return next(algorithm for algorithm in self.algorithms if algorithm.name == name)


# --- weighting rules in files, named in a plan as ``file.py:function`` -------------------------


def check_rule(parameters: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Replace a weighting ``file.py:function`` by the function; the file is relative to `folder`.

    This runs the file: treat a plan as you would treat a program.
    """
    path = _rule_path(parameters, folder)
    if path is None:
        return dict(parameters)
    weighting = parameters["weighting"]
    name = weighting.rpartition(":")[2]
    if not path.is_file():
        raise StudyError(f"weighting {weighting!r}: there is no file {str(path)!r}; check its name")
    where = f"weighting {weighting!r}: {str(path)!r}"
    try:
        found = runpy.run_path(str(path))
    except (Exception, SystemExit) as error:
        raise StudyError(f"{where} cannot be run: {error!r}; correct it") from error
    if not callable(found.get(name)):
        raise StudyError(f"{where} has no function {name!r}; check its name")
    return {**parameters, "weighting": found[name]}


def rule_text(parameters: Mapping[str, Any], folder: Path) -> str | None:
    """Return the text of the file that a weighting names, or None; another text is another rule."""
    path = _rule_path(parameters, folder)
    # Python may read the file with another encoding; here only differences matter.
    return None if path is None else path.read_text(encoding="utf-8", errors="backslashreplace")


def _rule_path(parameters: Mapping[str, Any], folder: Path) -> Path | None:
    weighting = parameters.get("weighting")
    if not isinstance(weighting, str) or ":" not in weighting:
        return None
    return folder / weighting.rpartition(":")[0]
