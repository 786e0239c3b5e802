"""``fedkmeans fit``."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import typer

from fedkmeans import catalogue
from fedkmeans.algorithms import agree_on_schema
from fedkmeans.cli import console
from fedkmeans.cli.group import INTERRUPTED
from fedkmeans.cli.inputs import Client, as_clients, deal_out, note_on_scales, read_source
from fedkmeans.cli.progress import duration, watch_rounds
from fedkmeans.cli.source import BuiltIn, Source
from fedkmeans.conversation import hold
from fedkmeans.data import read_table
from fedkmeans.errors import DataError, ParameterError
from fedkmeans.federations.in_process import InProcess
from fedkmeans.lloyd import assign
from fedkmeans.model import Model, check_destination, is_model
from fedkmeans.parameters import check_integer
from fedkmeans.seeding import as_seed
from fedkmeans.site import Site

_STOPPED = {
    "tol": "the centroids hardly move any more (tol)",
    "patience": "the movement has not shrunk for long (patience)",
    "max_rounds": "no more rounds allowed (max_rounds); more might do better",
    "one shot": "one round is all it takes",
    "interrupted": "interrupted from the keyboard",
}


@dataclass(frozen=True)
class Task:
    """What `fit` was asked to do.

    Attributes
    ----------
    source : Source
    built_in : BuiltIn or None
        Used in place of files.
    algorithm : str
    n_clusters : int
    tuning : dict
        Parameters of the estimator that were given, `init` and `patience` still as text.
    seed : int or None
    out : pathlib.Path
    """

    source: Source
    built_in: BuiltIn | None
    algorithm: str
    n_clusters: int
    tuning: dict[str, Any]
    seed: int | None
    out: Path


def run_fit(task: Task, quiet: bool) -> None:
    """Read, fit, save and tell; when interrupted, save what there is and exit with 130."""
    check_destination(task.out)
    seed = as_seed(None) if task.seed is None else check_integer("seed", task.seed, least=0)
    check_integer("n_clusters (-k)", task.n_clusters)
    # Made before anything is read, so that an option that does not fit is told at once.
    catalogue.make(task.algorithm, n_clusters=task.n_clusters, **task.tuning)
    clients = _read(task, seed)
    tuning = _as_parameters(task.tuning, clients[0])
    estimator = catalogue.make(task.algorithm, n_clusters=task.n_clusters, random_state=seed, **tuning)
    started = time.monotonic()
    fit = _fit_pooled if catalogue.find_algorithm(task.algorithm).pooled else _fit_federated
    try:
        fit(estimator, clients, catalogue.find_algorithm(task.algorithm).title, quiet)
    except KeyboardInterrupt:
        if not hasattr(estimator, "cluster_centers_"):
            console.interrupted("before the first round was done, nothing was written.")
        else:
            _save(task, estimator, clients)
            console.interrupted(
                f"after round {estimator.n_iter_:,}; the model so far is saved in {str(task.out)!r}."
            )
        raise typer.Exit(INTERRUPTED) from None
    model = _save(task, estimator, clients)
    if not quiet:
        _tell(task, model, clients, time.monotonic() - started)


def _read(task: Task, seed: int) -> list[Client]:
    if (task.built_in is None) == (not task.source.paths):
        raise ParameterError("give either data files or a built-in data set with --dataset; see --help")
    if task.built_in is not None:
        return deal_out(task.built_in, seed)
    clients = as_clients(read_source(task.source))
    scales = note_on_scales(clients)
    if scales is not None:
        console.note(scales)
    return clients


def _as_parameters(tuning: dict[str, Any], client: Client) -> dict[str, Any]:
    """Turn what is still text into what the estimator takes."""
    parameters = dict(tuning)
    if "init" in parameters:
        parameters["init"] = _initial(parameters["init"], client.feature_names)
    if "patience" in parameters:
        parameters["patience"] = _patience(parameters["patience"])
    return parameters


def _patience(text: str) -> int | None:
    if text.lower() == "none":
        return None
    try:
        return int(text)
    except ValueError:
        raise ParameterError(f"patience must be a whole number or none, got {text!r}") from None


def _initial(init: str, names: tuple[str, ...] | None) -> Any:
    """Read centroids (k, m) where `init` is a file or a model; else it is the name of a way to start."""
    path = Path(init)
    if not path.exists():
        return init  # the estimator knows its names and says so when this is none of them
    if is_model(path):
        model = Model.load(path)
        if names is not None and model.feature_names is not None:
            model.check_columns(names)
            return model.centroids[
                :, [model.feature_names.index(n) for n in names if n in model.feature_names]
            ]
        return model.centroids
    table = read_table(path)
    if not table.is_named or names is None:
        return table.X
    if set(table.feature_names) != set(names):
        raise DataError(
            f"file {init!r} has columns {list(table.feature_names)} where the data has {list(names)}; "
            "give the centroids the columns of the data"
        )
    return table.X[:, [table.feature_names.index(name) for name in names]]


def _fit_federated(estimator: Any, clients: list[Client], title: str, quiet: bool) -> None:
    federation = _federation(clients, estimator.n_jobs)
    max_rounds = estimator.get_params().get("max_rounds")
    with watch_rounds(console.err(), title, max_rounds, quiet) as observe:
        estimator.fit_federation(federation, on_round=observe)


def _fit_pooled(estimator: Any, clients: list[Client], title: str, quiet: bool) -> None:
    # The same checks as for a federation, with the same words.
    hold(_federation(clients, None), agree_on_schema(tuple(c.name for c in clients), estimator.n_clusters))
    X = clients[0].X if len(clients) == 1 else np.concatenate([client.X for client in clients])
    names = clients[0].feature_names
    console.note(f"k-means is not federated: it pools the {len(X):,} rows of all clients in one place.")
    with watch_rounds(console.err(), title, None, quiet):
        estimator.fit(X if names is None else pd.DataFrame(X, columns=list(names), copy=False))


def _federation(clients: list[Client], n_jobs: int | None) -> InProcess:
    return InProcess((Site(c.name, c.X, feature_names=c.feature_names) for c in clients), n_jobs)


def _save(task: Task, estimator: Any, clients: list[Client]) -> Model:
    sizes = [{"name": client.name, "n_samples": len(client.X)} for client in clients]
    dtypes = sorted({str(client.X.dtype) for client in clients})
    model = Model.from_estimator(estimator, algorithm=task.algorithm, clients=sizes, dtype=", ".join(dtypes))
    model.save(task.out)
    return model


def _tell(task: Task, model: Model, clients: list[Client], seconds: float) -> None:
    algorithm = catalogue.find_algorithm(task.algorithm)
    result, data = model.card["result"], model.card["data"]
    sizes = sum(
        np.bincount(assign(client.X, model.centroids), minlength=len(model.centroids)) for client in clients
    )
    rows = [
        ("clients", console.number(len(clients))),
        ("rows", console.number(data["n_samples"])),
        ("columns", console.number(data["n_features"])),
        ("steps" if algorithm.pooled else "rounds", console.number(result["n_rounds"])),
        ("stopped because", _STOPPED.get(result["stop_reason"], result["stop_reason"])),
        ("score per sample", console.number(result["score_per_sample"])),
        ("cluster sizes", ", ".join(f"{size:,}" for size in np.asarray(sizes))),
        ("seed", model.card["seed"]),
        ("time", duration(seconds)),
    ]
    console.show_facts(f"{algorithm.title}, {len(model.centroids)} clusters", rows)
    console.say(f"The model is in {str(task.out)!r}. To look at it: fedkmeans inspect {task.out}")
