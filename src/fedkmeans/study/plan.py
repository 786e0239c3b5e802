"""A study: which data, dealt out how, which algorithms, how many runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedkmeans.registry import find_algorithm


@dataclass(frozen=True, slots=True)
class Distribution:
    """A way to deal rows out to clients; the rule is None where data comes divided."""

    name: str
    rule: str | None = None
    options: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class DataPlan:
    """One data set of a study; what it says can be looked up by it.

    Attributes
    ----------
    name, title : str
        What records and what people call it; data sets of one title share a table.
    k : int
        Clusters.
    distributions : tuple of Distribution
    load : str or None
        Name of a built-in data set, or None where there are files.
    files : tuple of str
        Files and folders, seen from the plan's folder.
    reading : tuple of (str, value)
        Keywords of `fedkmeans.data.read_clients` for them.
    paper : str or None
        The data set of the paper whose figures are to stand beside, a key of `PAPER_TABLES`.
    """

    name: str
    title: str
    k: int
    distributions: tuple[Distribution, ...]
    load: str | None = None
    files: tuple[str, ...] = ()
    reading: tuple[tuple[str, Any], ...] = ()
    paper: str | None = None


@dataclass(frozen=True, slots=True)
class AlgorithmPlan:
    """One algorithm of a study: its name there, its name in the catalogue, and what is set."""

    name: str
    title: str
    algorithm: str
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_pooled(self) -> bool:
        """Whether all rows are in one place, so that it does not matter how they are dealt out."""
        return find_algorithm(self.algorithm).pooled


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole study.

    Attributes
    ----------
    name, title : str
    folder : pathlib.Path
        Where the plan's file is; its data files and rules are looked for there.
    seed, runs, n_clients : int
    clients_per_round : tuple of int
        As many as there are clients means all of them.
    min_cluster_size : int
        Rows a site asks for before it sends their mean, see `SitePolicy`.
    data : tuple of DataPlan
    algorithms : tuple of AlgorithmPlan
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

    def find_data(self, name: str) -> DataPlan:
        """Return the data set of that name."""
        return next(data for data in self.data if data.name == name)

    def find_algorithm(self, name: str) -> AlgorithmPlan:
        """Return the algorithm of that name."""
        return next(algorithm for algorithm in self.algorithms if algorithm.name == name)
