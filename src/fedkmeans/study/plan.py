"""A study as its TOML file says it: which data, dealt out how, which algorithms, how many runs."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedkmeans.catalogue import find_algorithm, make
from fedkmeans.data import DATASETS, PARTITIONERS
from fedkmeans.errors import FedKMeansError, StudyError
from fedkmeans.paper_values import PAPER
from fedkmeans.parameters import check_choice, check_integer
from fedkmeans.study.rules import check_rule

# How the clients are called that data comes with.
OWN = "own"
# Keywords of `read_clients` that a plan may give for files.
_READING = ("label", "columns", "drop", "client", "missing", "header")


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
        The data set of the paper whose figures are to stand beside, a key of `PAPER`.
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


def load_plan(path: str | Path) -> Plan:
    """Read a plan and check all that can be checked before anything is run.

    Parameters
    ----------
    path : path
        A TOML file; the page *Studies* of the documentation says what may stand in it.

    Raises
    ------
    StudyError
        Says which entry of the file cannot be, and what could stand there.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise StudyError(f"{str(path)!r} is no text in UTF-8; give a plan in TOML") from error
    except OSError as error:
        raise StudyError(f"cannot read plan {str(path)!r}: {error.strerror}; check the path") from error
    try:
        return parse_plan(tomllib.loads(text), path.stem, path.parent)
    except tomllib.TOMLDecodeError as error:
        raise StudyError(f"{str(path)!r} is not TOML: {error}; correct it") from error
    except FedKMeansError as error:
        raise StudyError(f"plan {str(path)!r}: {error}") from error


def parse_plan(table: Mapping[str, Any], name: str, folder: Path) -> Plan:
    """Turn what a TOML file says into a plan; `name` is the one it has if it does not say."""
    known = ("name", "title", "seed", "runs", "n_clients", "clients_per_round", "min_cluster_size")
    _check_keys("the plan", table, (*known, "data", "algorithm"))
    name = _text("name", table.get("name", name))
    n_clients = check_integer("n_clients", table.get("n_clients", 100))
    data = tuple(_data(entry, number) for number, entry in enumerate(_entries(table, "data"), 1))
    algorithms = tuple(
        _algorithm(entry, number, folder) for number, entry in enumerate(_entries(table, "algorithm"), 1)
    )
    _check_unique("data", [entry.name for entry in data])
    _check_unique("algorithm", [entry.name for entry in algorithms])
    return Plan(
        name=name,
        title=_text("title", table.get("title", name)),
        folder=folder,
        seed=check_integer("seed", table.get("seed", 0), least=0),
        runs=check_integer("runs", table.get("runs", 10)),
        n_clients=n_clients,
        clients_per_round=_participation(table, n_clients),
        min_cluster_size=check_integer("min_cluster_size", table.get("min_cluster_size", 2)),
        data=data,
        algorithms=algorithms,
    )


def _participation(table: Mapping[str, Any], n_clients: int) -> tuple[int, ...]:
    given = table.get("clients_per_round", [n_clients])
    numbers = given if isinstance(given, list) else [given]
    if not numbers:
        raise StudyError("clients_per_round is empty; give at least one number")
    found = tuple(check_integer("clients_per_round", number) for number in numbers)
    _check_unique("clients_per_round", [str(number) for number in found])
    return found


def _data(entry: Mapping[str, Any], number: int) -> DataPlan:
    where = f"[[data]] number {number}"
    _check_keys(
        where,
        entry,
        ("name", "title", "load", "files", "k", "distribution", "distributions", "paper", *_READING),
    )
    files, load = entry.get("files"), entry.get("load")
    if files is None:
        load = load or entry.get("name")
        if load not in DATASETS:
            raise StudyError(
                f"{where}: there is no data set {load!r}; set load to one of {', '.join(DATASETS)}, "
                "or give files"
            )
    elif load is not None:
        raise StudyError(f"{where} has both load and files; leave one out")
    elif not isinstance(files, list) or not files or not all(isinstance(file, str) for file in files):
        raise StudyError(f'{where}: files must be a list of names, as ["a.csv", "b.csv"]; got {files!r}')
    name = _text("name", entry.get("name", load))
    if "k" not in entry:
        raise StudyError(f"{where} ({name}) does not say k, the number of clusters")
    return DataPlan(
        name=name,
        title=_text("title", entry.get("title", name)),
        k=check_integer("k", entry["k"]),
        distributions=_distributions(entry, where),
        load=load,
        files=tuple(files or ()),
        reading=tuple((key, _frozen(entry[key])) for key in _READING if key in entry),
        paper=check_choice(f"{where}: paper", entry["paper"], PAPER) if "paper" in entry else None,
    )


def _distributions(entry: Mapping[str, Any], where: str) -> tuple[Distribution, ...]:
    if "distributions" not in entry:
        return (Distribution(_text("distribution", entry.get("distribution", OWN))),)
    if "distribution" in entry:
        raise StudyError(
            f"{where} has both distribution, which names the clients that the data comes with, and "
            "distributions, by which it is dealt out; leave one out"
        )
    given = entry["distributions"]
    if not isinstance(given, list) or not given:
        raise StudyError(f'{where}: distributions must be a list, as ["iid", "non-iid"]; got {given!r}')
    found = tuple(_distribution(one, where) for one in given)
    _check_unique(f"{where}: distributions", [one.name for one in found])
    return found


def _distribution(given: Any, where: str) -> Distribution:
    table = {"rule": given} if isinstance(given, str) else given
    if not isinstance(table, Mapping):
        raise StudyError(f"{where}: a distribution is a name or a table, got {given!r}")
    rule = check_choice(f"{where}: distribution", table.get("rule"), PARTITIONERS)
    options: dict[str, Any] = {key: value for key, value in table.items() if key not in ("rule", "name")}
    for option in PARTITIONERS[rule].options:
        if not isinstance(options.get(option), int | float) or isinstance(options.get(option), bool):
            raise StudyError(f'{where}: {rule} needs a number: {{rule = "{rule}", {option} = 0.5}}')
    _check_keys(f"{where}: distribution {rule}", options, PARTITIONERS[rule].options)
    shown = ", ".join(f"{key} = {value:g}" for key, value in options.items())
    name = _text("name", table.get("name", f"{rule} ({shown})" if shown else rule))
    return Distribution(name, rule, tuple(options.items()))


def _algorithm(entry: Mapping[str, Any], number: int, folder: Path) -> AlgorithmPlan:
    where = f"[[algorithm]] number {number}"
    if "name" not in entry:
        raise StudyError(f'{where} has no name, as in name = "dwf"')
    name = _text("name", entry["name"])
    algorithm = _text("algorithm", entry.get("algorithm", name))
    catalogued = find_algorithm(algorithm)
    title = _text("title", entry.get("title", catalogued.title if algorithm == name else name))
    parameters = {key: value for key, value in entry.items() if key not in ("name", "algorithm", "title")}
    for key in ("n_clusters", "clients_per_round", "random_state", "n_jobs", "score_every"):
        if key in parameters:
            raise StudyError(f"{where} ({name}): {key} is for the study to set; leave it out")
    # Making one finds wrong names now rather than after the first hours.
    make(algorithm, **check_rule(parameters, folder))
    return AlgorithmPlan(name, title, algorithm, parameters)


def _entries(table: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    entries = table.get(key)
    if not isinstance(entries, list) or not entries or not all(isinstance(e, Mapping) for e in entries):
        raise StudyError(f"a plan needs at least one [[{key}]]")
    return entries


def _check_keys(where: str, table: Mapping[str, Any], known: Collection[str]) -> None:
    unknown = sorted(set(table) - set(known))
    if unknown:
        raise StudyError(f"{where} knows no {', '.join(unknown)}; it takes {', '.join(known) or 'nothing'}")


def _check_unique(what: str, names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise StudyError(f"{what}: {', '.join(twice)} is there twice; give each a name of its own")


def _frozen(value: Any) -> Any:
    """Lists become tuples, so that a plan can be the key of what is remembered for it."""
    return tuple(value) if isinstance(value, list) else value


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise StudyError(f"{key} must be a text, got {value!r}")
    return value
