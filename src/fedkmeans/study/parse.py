"""Read a plan from a TOML file, and check it before anything is run."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fedkmeans._utils.checks import check_choice, check_integer, check_real
from fedkmeans.data import DATASETS, MISSING_RULES, PARTITIONERS, partition
from fedkmeans.errors import FedKMeansError, StudyError
from fedkmeans.registry import find_algorithm, make
from fedkmeans.study.paper_values import PAPER_DATA
from fedkmeans.study.plan import AlgorithmPlan, DataPlan, Distribution, Plan, check_rule

_PLAN_KEYS = (
    "name", "title", "seed", "runs", "n_clients", "clients_per_round", "min_cluster_size", "reference",
    "within", "curves", "data", "algorithm",
)  # fmt: skip
# Parameters that the study sets itself.
_SET_BY_STUDY = ("n_clusters", "clients_per_round", "random_state", "n_jobs", "score_every")

_Entry = TypeVar("_Entry", DataPlan, AlgorithmPlan)


def load_plan(path: str | Path) -> Plan:
    """Read a plan, and check all that can be checked before anything is run.

    Parameters
    ----------
    path : path
        A TOML file; the page *Studies* of the documentation lists its entries.

    Raises
    ------
    StudyError
        Names the entry of the file that is wrong, and what is possible.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise StudyError(f"{str(path)!r} is no text in UTF-8; give a plan in TOML") from error
    except OSError as error:
        raise StudyError(f"cannot read plan {str(path)!r}: {error.strerror}; check the path") from error
    try:
        # The absolute path, as a worker may have another current folder.
        return parse_plan(tomllib.loads(text), path.stem, path.absolute().parent)
    except tomllib.TOMLDecodeError as error:
        raise StudyError(f"{str(path)!r} is not TOML: {error}; correct it") from error
    except FedKMeansError as error:
        raise StudyError(f"plan {str(path)!r}: {error}") from error


def parse_plan(table: Mapping[str, Any], name: str, folder: Path) -> Plan:
    """Make a plan from the contents of a TOML file; `name` is used if the file has none."""
    _check_keys("the plan", table, _PLAN_KEYS)
    name = _text("name", table.get("name", name))
    if Path(name).name != name or name == ".." or "\\" in name:
        raise StudyError(f"name {name!r} cannot be that of the folder of its records; leave out slashes")
    data = _each(table, "data", _data)
    algorithms = _each(table, "algorithm", lambda entry: _algorithm(entry, folder))
    names = [entry.name for entry in algorithms]
    n_clients = check_integer("n_clients", table.get("n_clients", 100))
    return Plan(
        name=name,
        title=_text("title", table.get("title", name)),
        folder=folder,
        seed=check_integer("seed", table.get("seed", 0), least=0),
        runs=check_integer("runs", table.get("runs", 10)),
        n_clients=n_clients,
        clients_per_round=_participation(table.get("clients_per_round", n_clients), n_clients, data),
        min_cluster_size=check_integer("min_cluster_size", table.get("min_cluster_size", 2)),
        data=data,
        algorithms=algorithms,
        reference=check_choice("reference", table["reference"], names) if "reference" in table else None,
        within=check_real("within", table.get("within", 0.5), low=0, high=math.inf),
        curves=check_integer("curves", table.get("curves", 5), least=0),
    )


def _participation(given: Any, n_clients: int, data: Sequence[DataPlan]) -> tuple[int, ...]:
    """Return the numbers of clients per round; those for data with clients of its own are checked later."""
    if given == []:
        raise StudyError("clients_per_round is empty; give at least one number")
    numbers = given if isinstance(given, list) else [given]
    found = tuple(check_integer("clients_per_round", number) for number in numbers)
    _check_unique("clients_per_round", [str(number) for number in found])
    for one in data:
        if max(found) > n_clients and any(how.rule is not None for how in one.distributions):
            raise StudyError(
                f"clients_per_round asks for {max(found)} clients, but {one.name} is dealt out to n_clients "
                f"= {n_clients}; lower the one or raise the other"
            )
    return found


def _data(entry: Mapping[str, Any]) -> DataPlan:
    known = ("name", "title", "load", "files", "k", "distribution", "distributions", "paper", *_READING)
    _check_keys("[[data]]", entry, known)
    load, files = _source(entry)
    if load is None and "name" not in entry:
        raise StudyError('files need a name, as in name = "wards"')
    name = _text("name", entry.get("name", load))
    if "k" not in entry:
        raise StudyError(f"{name} does not say k, the number of clusters, as in k = 5")
    return DataPlan(
        name=name,
        title=_text("title", entry.get("title", name)),
        k=check_integer("k", entry["k"]),
        distributions=_distributions(entry),
        load=load,
        files=files,
        reading=tuple((key, check(key, entry[key])) for key, check in _READING.items() if key in entry),
        paper=check_choice("paper", entry["paper"], PAPER_DATA) if "paper" in entry else None,
    )


def _source(entry: Mapping[str, Any]) -> tuple[str | None, tuple[str, ...]]:
    """Return the built-in data set, or the files."""
    if "files" not in entry:
        load = entry.get("load", entry.get("name"))
        if not isinstance(load, str) or load not in DATASETS:
            raise StudyError(
                f"there is no data set {load!r}; set load to one of {', '.join(DATASETS)}, or give files"
            )
        for key in _READING:
            if key in entry:
                raise StudyError(f"{key} says how files are read, and {load} is no file; leave it out")
        return load, ()
    if "load" in entry:
        raise StudyError("there are both load and files; leave one out")
    files = _texts("files", entry["files"])
    if not files:
        raise StudyError('files is empty; name at least one, as in files = ["a.csv", "b.csv"]')
    return None, files


def _distributions(entry: Mapping[str, Any]) -> tuple[Distribution, ...]:
    if "distributions" not in entry:
        return (Distribution(_text("distribution", entry.get("distribution", "own"))),)
    if "distribution" in entry:
        raise StudyError(
            "there are both distribution, which names the clients that the data comes with, and "
            "distributions, by which it is dealt out; leave one out"
        )
    given = entry["distributions"]
    if not isinstance(given, list) or not given:
        raise StudyError(f'distributions must be a list, as ["iid", "non-iid"]; got {given!r}')
    found = tuple(_distribution(one) for one in given)
    _check_unique("distributions", [one.name for one in found])
    return found


def _distribution(given: Any) -> Distribution:
    table = {"rule": given} if isinstance(given, str) else given
    if not isinstance(table, Mapping):
        raise StudyError(f'a distribution is a name or a table, as {{rule = "iid"}}; got {given!r}')
    rule = check_choice("the rule of a distribution", table.get("rule"), PARTITIONERS)
    options: dict[str, Any] = {key: value for key, value in table.items() if key not in ("rule", "name")}
    for option in PARTITIONERS[rule].options:
        if not isinstance(options.get(option), int | float) or isinstance(options.get(option), bool):
            raise StudyError(f'{rule} needs a number: {{rule = "{rule}", {option} = 0.5}}')
    _check_keys(f"distribution {rule}", options, PARTITIONERS[rule].options)
    if options:
        # Distributing one row finds wrong numbers before anything is run.
        partition(rule, np.zeros((1, 1)), np.zeros(1, dtype=int), 1, np.random.default_rng(0), **options)
    shown = ", ".join(f"{key} = {value:g}" for key, value in options.items())
    name = _text("name", table.get("name", f"{rule} ({shown})" if shown else rule))
    return Distribution(name, rule, tuple(options.items()))


def _algorithm(entry: Mapping[str, Any], folder: Path) -> AlgorithmPlan:
    if "name" not in entry:
        raise StudyError('there is no name, as in name = "dwf"')
    name = _text("name", entry["name"])
    algorithm = _text("algorithm", entry.get("algorithm", name))
    catalogued = find_algorithm(algorithm)
    title = _text("title", entry.get("title", catalogued.title if algorithm == name else name))
    parameters = {key: value for key, value in entry.items() if key not in ("name", "algorithm", "title")}
    for key in _SET_BY_STUDY:
        if key in parameters:
            raise StudyError(f"{key} of {name} is for the study to set; leave it out")
    _check_parameters(algorithm, check_rule(parameters, folder))
    return AlgorithmPlan(name, title, algorithm, parameters)


def _check_parameters(algorithm: str, parameters: dict[str, Any]) -> None:
    """Raise on wrong names and values now rather than after the first hours."""
    for key, value in parameters.items():
        if isinstance(value, bool):  # scikit-learn accepts it as a number
            raise StudyError(f"{key} must be a number or a text, got {str(value).lower()}")
    model = make(algorithm, **parameters)
    if not find_algorithm(algorithm).pooled:
        model.check_parameters()
        return
    try:
        model._validate_params()  # of scikit-learn
    except ValueError as error:
        raise StudyError(str(error)) from error


def _each(
    table: Mapping[str, Any], key: str, read: Callable[[Mapping[str, Any]], _Entry]
) -> tuple[_Entry, ...]:
    """Read all entries of a kind, with different names; errors give the number of the entry."""
    entries = table.get(key)
    if not isinstance(entries, list) or not entries or not all(isinstance(e, Mapping) for e in entries):
        raise StudyError(f"a plan needs at least one [[{key}]]")
    found = []
    for number, entry in enumerate(entries, 1):
        try:
            found.append(read(entry))
        except FedKMeansError as error:
            raise StudyError(f"[[{key}]] number {number}: {error}") from error
    _check_unique(f"[[{key}]]", [entry.name for entry in found])
    return tuple(found)


def _check_keys(where: str, table: Mapping[str, Any], known: Collection[str]) -> None:
    unknown = sorted(set(table) - set(known))
    if unknown:
        raise StudyError(f"{where} knows no {', '.join(unknown)}; it takes {', '.join(known) or 'nothing'}")


def _check_unique(what: str, names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise StudyError(f"{what}: {', '.join(twice)} is there twice; leave one out or rename it")


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise StudyError(f'{key} must be a text, as {key} = "a"; got {value!r}')
    return value


def _texts(key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        raise StudyError(f'{key} must be a list of names, as {key} = ["a", "b"]; got {value!r}')
    return tuple(value)


def _yes_or_no(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise StudyError(f"{key} must be true or false, got {value!r}")
    return value


# Keywords of `read_clients` that a plan may give for files; lists become tuples, which are hashable.
_READING: dict[str, Callable[[str, Any], Any]] = {
    "label": _text,
    "columns": _texts,
    "drop": _texts,
    "client": _text,
    "missing": partial(check_choice, choices=MISSING_RULES),
    "header": _yes_or_no,
}
