"""``fedkmeans federation run``: start a run on Flower, follow it, and show the result."""

import shlex
import time
import tomllib
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import typer

from fedkmeans._utils.atomic_io import atomic_path
from fedkmeans._utils.seeding import as_seed
from fedkmeans.algorithms.initialization import INITIALIZERS
from fedkmeans.cli import console
from fedkmeans.cli.console import about_result, about_round, count, duration, time_left
from fedkmeans.cli.fit import checked_tuning
from fedkmeans.cli.process import exit_code
from fedkmeans.errors import DataError, FederationError, ParameterError, option_of
from fedkmeans.flower.deploy import services
from fedkmeans.flower.deploy.files import to_toml
from fedkmeans.flower.deploy.folder import CONNECTION, FederationFolder, check_site_name
from fedkmeans.flower.deploy.run_folder import RunFolder
from fedkmeans.flower.deploy.settings import RunSettings, from_run_config, to_run_config
from fedkmeans.flower.transport import WaitPolicy
from fedkmeans.model import Model
from fedkmeans.study.page.run import write_run_report

_LOOK_S, _ASK_FLOWER_S = 0.5, 10.0
_SETTINGS_FILE = "run.toml"
_OVER = ("finished", "interrupted", "failed", "stopped")


@dataclass(frozen=True)
class RunRequest:
    """The options of `run`."""

    folder: Path
    name: str | None
    resume: bool
    k: int
    algorithm: str
    seed: int | None
    tuning: dict[str, Any]
    waiting: WaitPolicy


def run_on_federation(
    *, quiet: bool, timeout: float, min_answers: int, wait: float, cool_down: float, **options: Any
) -> None:
    """Start a run, follow it and show the result; Ctrl-C ends it after the current round."""
    request = RunRequest(**options, waiting=WaitPolicy(timeout, min_answers, wait, cool_down))
    folder = FederationFolder(request.folder.resolve())
    folder.read()
    run, settings = _settings(folder, request)
    if not services.is_up(folder):
        place = shlex.quote(str(folder.path))
        raise FederationError(f"The server is not running. Start it with: fedkmeans federation serve {place}")
    started = time.monotonic()
    run_id = _start(folder, run, settings)
    try:
        status = _watch(folder, run, run_id, quiet)
    except KeyboardInterrupt as stop:
        status = _stop(folder, run, run_id)
        _tell(run, settings, status, time.monotonic() - started)
        raise typer.Exit(exit_code(stop)) from None
    if status.get("status") not in ("finished", "interrupted"):
        raise FederationError(_why_failed(request, run, status))
    if not quiet:
        _tell(run, settings, status, time.monotonic() - started)


def _settings(folder: FederationFolder, request: RunRequest) -> tuple[RunFolder, RunSettings]:
    """Return the run's folder, and settings that are checked before anything starts."""
    name = request.name or datetime.now().astimezone().strftime("%Y-%m-%d_%H-%M-%S")
    check_site_name(name)
    run = RunFolder(folder / "runs" / name)
    if request.resume and request.name is None:
        raise ParameterError("--resume needs the --name of the run to go on with")
    if request.resume and not (run.path / _SETTINGS_FILE).exists():
        raise ParameterError(f"there is no run {name!r} to go on with; leave out --resume")
    if run.path.exists() and not request.resume:
        raise ParameterError(
            f"there is a run {name!r} already; go on with it (--resume) or choose another --name"
        )
    settings = _settings_of(run, request) if request.resume else _new_settings(run, request)
    return run, replace(settings, waiting=request.waiting)


def _new_settings(run: RunFolder, request: RunRequest) -> RunSettings:
    tuning = checked_tuning(request.algorithm, request.tuning)
    if tuning.get("init", "kfed") not in INITIALIZERS:
        raise ParameterError(f"--init must be one of {', '.join(INITIALIZERS)} in a federation")
    return RunSettings(
        n_clusters=request.k,
        algorithm=request.algorithm,
        seed=as_seed(None) if request.seed is None else request.seed,
        tuning=tuning,
        folder=run.path.name,  # not its path, as sites receive all settings
    )


def _settings_of(run: RunFolder, request: RunRequest) -> RunSettings:
    """Return the settings with which a run was begun; options that are given again must be the same."""
    settings = from_run_config(tomllib.loads((run.path / _SETTINGS_FILE).read_text(encoding="utf-8")))
    given = {"n_clusters": request.k, **checked_tuning(settings.algorithm, request.tuning)}
    begun = {"n_clusters": settings.n_clusters, **settings.tuning}
    if request.seed is not None:
        given["seed"], begun["seed"] = request.seed, settings.seed
    if request.algorithm != "last-word":  # the default, which was probably not typed
        given["algorithm"], begun["algorithm"] = request.algorithm, settings.algorithm
    for name, value in given.items():
        if value != begun.get(name):
            option, then = option_of(name), begun.get(name, "the default")
            raise ParameterError(
                f"the run {run.path.name!r} was begun with {option} {then}, not {value}; leave it out, or "
                "begin another run"
            )
    return settings


def _start(folder: FederationFolder, run: RunFolder, settings: RunSettings) -> str:
    run.make()
    run.say("starting", seed=settings.seed)
    config = run.path / _SETTINGS_FILE
    with atomic_path(config) as temporary:
        temporary.write_text(to_toml(to_run_config(settings)), encoding="utf-8")
    answer = services.flwr(folder, "run", str(folder / "app"), CONNECTION, "--run-config", str(config))
    return str(answer["run-id"])


def _watch(folder: FederationFolder, run: RunFolder, run_id: str, quiet: bool) -> dict[str, Any]:
    """Show the rounds until the run is over; return how it ended."""
    shown, lost, next_question = 0, False, time.monotonic() + _ASK_FLOWER_S
    while True:
        status = run.status()
        lines = list(run.progress())
        for line in lines[shown:]:
            if not quiet:
                console.note(_about_round(line, lines[0]))
        shown = len(lines)
        if status.get("status") in _OVER:
            return status
        if time.monotonic() > next_question:
            ended, lost = _ended(folder, run_id, lost)
            if ended is not None and run.status().get("status") not in _OVER:
                # The run could not record it itself. The disk may be full; the user is told in any case.
                with suppress(OSError, DataError):
                    run.say("failed", run=run_id, reason=ended)
                return {"status": "failed", "reason": ended}
            next_question = time.monotonic() + _ASK_FLOWER_S
        time.sleep(_LOOK_S)


def _about_round(line: dict[str, Any], first: dict[str, Any]) -> str:
    more = [f"{len(line['answered'])} answered"]
    if line["missing"]:
        silent = "; ".join(f"{name} ({why})" if why else name for name, why in line["missing"].items())
        more.append(f"missing: {silent}")
    if line["of"]:
        done, todo = line["round"] - first["round"], line["of"] - line["round"]
        more.append(time_left("at most", line["time"] - first["time"], done, todo))
    return about_round(line["round"], line["of"], line["estimate"], line["movement"], *more)


def _ended(folder: FederationFolder, run_id: str, lost: bool) -> tuple[str | None, bool]:
    """Return how Flower says that a run ended, None while it runs; and whether the server is lost."""
    try:
        (found,) = services.flwr(folder, "list", CONNECTION, "--run-id", run_id)["runs"]
    except FederationError:
        if not lost:
            console.note("The server does not answer; it is looked for until it does.")
        return None, True
    if not str(found["status"]).startswith("finished"):
        return None, False
    return f"{found['status']} {found.get('status-details', '')}".strip(), False


def _stop(folder: FederationFolder, run: RunFolder, run_id: str) -> dict[str, Any]:
    """Ask the run to end after this round; a second Ctrl-C ends it at once."""
    run.ask_to_stop()
    console.note("The run ends after this round, with the best it has. Ctrl-C again ends it now.")
    try:
        return _watch(folder, run, run_id, quiet=True)
    except KeyboardInterrupt:
        try:
            services.flwr(folder, "stop", run_id, CONNECTION)
        except FederationError as error:
            console.note(f"The run could not be ended: {error}")
        return {"status": "stopped", "reason": "it can be resumed with --resume"}


def _why_failed(request: RunRequest, run: RunFolder, status: dict[str, Any]) -> str:
    reason = str(status.get("reason", status.get("status"))).rstrip(".")
    usual = asdict(WaitPolicy())
    given = {name: value for name, value in asdict(request.waiting).items() if value != usual[name]}
    waiting = [f" {option_of(name)} {value}" for name, value in given.items()]
    return (
        f"The run ended without a model: {reason}. What the sites answered is kept; go on with: fedkmeans "
        f"federation run {shlex.quote(str(request.folder))} -k {request.k} --name {run.path.name} --resume"
        f"{''.join(waiting)}"
    )


def _tell(run: RunFolder, settings: RunSettings, status: dict[str, Any], seconds: float) -> None:
    if not run.model.exists():
        console.note(f"There is no model; {status.get('reason', 'the run was ended')}.")
        return
    model = Model.load(run.model)
    rows = [
        ("sites", ", ".join(client["name"] for client in model.card["data"]["clients"])),
        *about_result(model.card),
        ("seed", settings.seed),
        ("time", duration(seconds)),
    ]
    console.show_facts(f"{settings.algorithm}, {count(len(model.centroids), 'cluster')}", rows)
    missing: dict[str, list[str]] = {}  # reasons why each site gave no answer, one for each time
    for line in run.progress():
        for site, why in line["missing"].items():
            missing.setdefault(site, []).append(why)
    page = run.path / "report.html"
    write_run_report(model, page, run.path.name, missing)
    console.say(f"The model is in {str(run.model)!r}; {str(page)!r} is a page about the run.")
