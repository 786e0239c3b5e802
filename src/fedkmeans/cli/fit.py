"""``fedkmeans fit``."""

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import typer
from joblib import effective_n_jobs

from fedkmeans import registry
from fedkmeans._utils.checks import check_choice, check_integer
from fedkmeans._utils.seeding import as_seed
from fedkmeans._utils.typing import DataArray, FloatArray, IntArray
from fedkmeans.algorithms.fit import MemorySetting, agree_on_schema
from fedkmeans.algorithms.initialization import INITIALIZERS
from fedkmeans.cli import console
from fedkmeans.cli.console import about_result, count, duration, exchanged, number
from fedkmeans.cli.files import Source, check_model_place, deal_out, notes_on_columns, read_source
from fedkmeans.cli.options import TUNING
from fedkmeans.cli.process import exit_code, undisturbed
from fedkmeans.cli.progress import watch_rounds
from fedkmeans.client.in_process import InProcess
from fedkmeans.client.site import Site
from fedkmeans.data import read_table
from fedkmeans.data.wording import listing
from fedkmeans.errors import DataError, ParameterError, option_of
from fedkmeans.kernels import AUTO
from fedkmeans.kernels.preparation import Stopwatch
from fedkmeans.model import Model, is_model
from fedkmeans.protocol.exchange import run

# Loading compiled code takes less than this, compiling it more.
_WORTH_MENTIONING_S = 2.0
# Those that the help lists; others that the package knows are for internal use.
WEIGHTING_NAMES = ("dynamic", "equal", "by_size", "by_compactness")


def run_fit(
    *,
    data: list[Path] | None,
    k: int,
    algorithm: str,
    seed: int | None,
    out: Path,
    force: bool,
    quiet: bool,
    source: dict[str, Any],
    built_in: dict[str, Any],
    tuning: dict[str, Any],
) -> None:
    """Read, fit, save and report. After Ctrl-C the result so far is saved."""
    for name in built_in if "dataset" not in built_in else ():
        raise typer.BadParameter("only --dataset is dealt out to clients.", param_hint=option_of(name))
    check_model_place(out, force)
    seed = as_seed(None) if seed is None else check_integer("--seed", seed, least=0)
    check_integer("-k", k)
    # Before the data is read, so that a wrong option is reported at once.
    tuning = checked_tuning(algorithm, tuning)
    sites = _read(Source.of(data, **source), built_in, seed, tuning.get("kernel", AUTO))
    tuning = _with_start(tuning, k, sites[0])
    found = registry.find_algorithm(algorithm)
    estimator = registry.make(algorithm, n_clusters=k, random_state=seed, **tuning)
    stopwatch = Stopwatch()
    try:
        (_fit_pooled if found.pooled else _fit_federated)(estimator, sites, found.title, quiet)
    except KeyboardInterrupt as stop:
        if not hasattr(estimator, "cluster_centers_"):
            console.interrupted("there is no result yet, so nothing is written.")
        else:
            _save(algorithm, out, estimator, sites)
            console.interrupted(
                f"the model so far is saved in {str(out)!r}, after {count(estimator.n_iter_, 'round')}."
            )
        raise typer.Exit(exit_code(stop)) from None
    model = _save(algorithm, out, estimator, sites)
    sizes = np.sum([_sizes(site, model.centroids, _n_jobs(estimator)) for site in sites], axis=0)
    if not quiet:
        _tell(found, model, out, sizes, stopwatch)
    _note_on_empty(found, tuning, sizes)


def _n_jobs(estimator: Any) -> int:
    """Return the number of threads: all cores unless the user says otherwise."""
    given: int | None = estimator.get_params().get("n_jobs")
    return -1 if given is None else given


def _sizes(site: Site, centroids: FloatArray, n_jobs: int) -> IntArray:
    labels = site.table.kernel.assign(site.X, centroids, effective_n_jobs(n_jobs))
    return np.bincount(labels, minlength=len(centroids))


def checked_tuning(name: str, tuning: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of the estimator for options as typed; refuse those that it does not take."""
    _check_options(name, tuning)
    # Each of these is a name or a number.
    as_text: dict[str, Any] = {"memory": _memory, "patience": _patience}
    as_text |= {"init_clients": _at_most, "init_rows": _at_most}
    tuning = {key: as_text[key](value) if key in as_text else value for key, value in tuning.items()}
    registry.make(name, **tuning).check_parameters()
    return tuning


def _check_options(name: str, tuning: dict[str, Any]) -> None:
    """Refuse options that the algorithm does not have, and names that do not exist."""
    check_choice("--algorithm", name, registry.ALGORITHMS)
    algorithm = registry.find_algorithm(name)
    takes = [parameter for parameter in TUNING if parameter in algorithm.parameters()]
    unknown = [parameter for parameter in tuning if parameter not in takes]
    if unknown == ["weighting"] and "weighting" in algorithm.fixed:
        rule = algorithm.fixed["weighting"]
        raise ParameterError(f"--weighting cannot be set for {name!r}, it is {rule!r}; use --algorithm wf")
    if unknown and set(unknown) <= {"memory", "tol_score"} & algorithm.fixed.keys():
        options = ", ".join(map(option_of, unknown))
        memory = _memory(tuning.get("memory", "server"))
        way = "leave it out" if memory is None else f"use --algorithm {registry.algorithm_with(memory)}"
        raise ParameterError(f"{options} cannot be set for {name!r}, which has no memory; {way}")
    if unknown:
        options = ", ".join(map(option_of, takes))
        raise ParameterError(
            f"{', '.join(map(option_of, unknown))} cannot be set for {name!r} ({algorithm.title}). "
            f"It takes {options}."
        )
    if "weighting" in tuning:
        check_choice("--weighting", tuning["weighting"], WEIGHTING_NAMES)
    if "init" in tuning:
        _check_init(tuning["init"])


def _check_init(init: str) -> None:
    path = Path(init)
    if init in INITIALIZERS or (init and path.exists()):
        return
    ways = ", ".join(INITIALIZERS)
    if path.suffix or path.name != init:
        raise DataError(f"--init: file {init!r} does not exist; check the path, or name one of {ways}")
    raise ParameterError(f"--init must be one of {ways}, or a file or model with centroids; got {init!r}")


def _read(source: Source, built_in: dict[str, Any], seed: int, kernel: str) -> list[Site]:
    if ("dataset" in built_in) == bool(source.paths):
        raise ParameterError("give either data files or a built-in data set with --dataset; see --help")
    if built_in:
        return deal_out(seed=seed, kernel=kernel, **built_in)
    tables = read_source(source)
    for note in notes_on_columns(tables):
        console.note(note)
    return [Site(table.name, table.X, None, table.feature_names, kernel=kernel) for table in tables]


def _with_start(tuning: dict[str, Any], n_clusters: int, site: Site) -> dict[str, Any]:
    """Replace the name of a file or a model by its centroids."""
    if tuning.get("init", "kfed") in INITIALIZERS:
        return tuning
    init, shape = tuning["init"], (n_clusters, site.X.shape[1])
    centroids = _initial(init, site.feature_names)
    if centroids.shape != shape:
        raise ParameterError(
            f"{init!r} of --init must hold {count(shape[0], 'centroid')} of {count(shape[1], 'column')}, "
            f"and holds {centroids.shape[0]:,} of {centroids.shape[1]:,}; change -k, or take another file"
        )
    return {**tuning, "init": centroids}


def _patience(text: str) -> int | None:
    if text.lower() == "none":
        return None
    try:
        return int(text)
    except ValueError:
        raise ParameterError(f"--patience must be a whole number or none, got {text!r}") from None


def _at_most(text: str) -> int | str:
    return int(text) if text.isdecimal() else text.lower()


def _memory(text: str) -> MemorySetting:
    if text.lower() in ("none", "server", "client"):
        return None if text.lower() == "none" else text.lower()
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise ParameterError(f"--memory must be server, client, or a number in (0, 1); got {text!r}")
    return share


def _initial(init: str, names: tuple[str, ...] | None) -> DataArray:
    """Read centroids (k, m) from a file or a model, in the order of the data's columns."""
    path = Path(init)
    if is_model(path):
        model = Model.load(path)
        centroids, own = model.centroids, model.feature_names
    else:
        table = read_table(path)
        centroids, own = table.X, table.feature_names if table.is_named else None
    if own is None or names is None:
        return centroids
    if is_model(path):
        model.check_columns(names)
    elif set(own) != set(names):
        raise DataError(
            f"file {init!r} has columns {listing(own)} where the data has {listing(names)}; "
            "give the centroids the columns of the data"
        )
    return centroids[:, [own.index(name) for name in names if name in own]]


def _fit_federated(estimator: Any, sites: list[Site], title: str, quiet: bool) -> None:
    with watch_rounds(title, estimator.get_params().get("max_rounds"), quiet) as observe:
        estimator.fit_federation(InProcess(sites, _n_jobs(estimator)), on_round=observe)


def _fit_pooled(estimator: Any, sites: list[Site], title: str, quiet: bool) -> None:
    # The same checks as for a federation, with the same messages.
    run(InProcess(sites), agree_on_schema(tuple(site.name for site in sites), estimator.n_clusters))
    X: Any = sites[0].X if len(sites) == 1 else np.concatenate([site.X for site in sites])
    names = sites[0].feature_names
    rows = count(len(X), "row")
    console.note(f"k-means is not federated: it pools the {rows} of all clients in one place.")
    with watch_rounds(title, None, quiet):
        estimator.fit(X if names is None else pd.DataFrame(X, columns=list(names), copy=False))


def _save(algorithm: str, out: Path, estimator: Any, sites: list[Site]) -> Model:
    clients = [{"name": site.name, "n_samples": len(site.X)} for site in sites]
    dtype = ", ".join(sorted({str(site.X.dtype) for site in sites}))
    with undisturbed():
        model = Model.from_estimator(estimator, algorithm=algorithm, clients=clients, dtype=dtype)
        model.save(out)
    return model


def _tell(
    algorithm: registry.Algorithm, model: Model, out: Path, sizes: IntArray, stopwatch: Stopwatch
) -> None:
    seconds, preparation = stopwatch.seconds(), stopwatch.preparation()
    took = duration(seconds + preparation)
    if preparation >= _WORTH_MENTIONING_S:  # compiling happens once per machine
        took = f"{duration(seconds)}, and {duration(preparation)} to load and compile"
    rows = [
        ("clients", number(len(model.card["data"]["clients"]))),
        *about_result(model.card, algorithm.pooled),
        ("sent in rounds", exchanged(model.card["history"])),
        ("cluster sizes", ", ".join(f"{size:,}" for size in sizes)),
        ("seed", model.card["seed"]),
        ("time", took),
    ]
    console.show_facts(f"{algorithm.title}, {count(len(model.centroids), 'cluster')}", rows)
    place = shlex.quote(str(out))
    console.say(f"The model is in {str(out)!r}. To look at it: fedkmeans inspect {place}")


def _note_on_empty(algorithm: registry.Algorithm, tuning: dict[str, Any], sizes: IntArray) -> None:
    empty = int((sizes == 0).sum())
    if empty:
        ways = ["fewer clusters", "another --seed"]
        init = tuning.get("init")
        if "init" in algorithm.parameters() and not (isinstance(init, str) and init == "k-means++"):
            ways.append("--init k-means++")
        have = "has" if empty == 1 else "have"
        console.note(
            f"{empty:,} of {count(len(sizes), 'cluster')} {have} no rows; "
            f"{', '.join(ways[:-1])} or {ways[-1]} may do better."
        )
