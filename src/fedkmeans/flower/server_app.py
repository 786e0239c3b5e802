"""The ServerApp: Flower starts it for a run, and it runs the algorithm."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedkmeans.errors import FederationError, FedKMeansError, as_typed
from fedkmeans.flower.deploy.run_folder import RunFolder
from fedkmeans.flower.deploy.settings import RunSettings, from_run_config
from fedkmeans.flower.transport import Flower
from fedkmeans.model import Model
from fedkmeans.protocol.journal import Journalled

log = logging.getLogger(__name__)
app = ServerApp()

# The file with the nodes of all sites (without it, all connected sites take part), and the folder for
# runs without a folder of their own.
NODES_VARIABLE, RUNS_VARIABLE = "FEDKMEANS_NODES", "FEDKMEANS_RUNS"


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Fit, report the progress, and write the model."""
    settings, run_id = from_run_config(context.run_config), str(grid.run.run_id)
    folder = RunFolder(Path(os.environ.get(RUNS_VARIABLE, "fedkmeans-runs")) / (settings.folder or run_id))
    folder.make()
    folder.say("running", run=run_id, pid=os.getpid())
    try:
        _fit(grid, settings, folder)
    except (KeyboardInterrupt, SystemExit):  # SystemExit comes from `flwr stop`
        folder.say("stopped", run=run_id, reason="stopped before there was a model")
        raise
    except (FedKMeansError, OSError) as error:
        reason = as_typed(error)
        if isinstance(error, OSError):
            reason = (
                f"Cannot write to {str(error.filename or folder.path)!r}: {error.strerror or error}. "
                "Make room on the disk, or look after it, and go on with --resume: what the sites answered "
                "is kept."
            )
        try:
            folder.say("failed", run=run_id, reason=reason)
        except (FedKMeansError, OSError) as another:
            # The disk is full. Flower also reports the exception to `federation run`.
            log.error("%s (how the run stands cannot be written either: %s)", reason, another)
        if isinstance(error, OSError):
            raise FederationError(reason) from error
        raise


def _fit(grid: Grid, settings: RunSettings, folder: RunFolder) -> None:
    nodes_file = os.environ.get(NODES_VARIABLE)
    if nodes_file:
        nodes = json.loads(Path(nodes_file).read_text(encoding="utf-8"))
        federation = Flower(grid, {name: int(node) for name, node in nodes.items()}, settings.waiting)
    else:
        federation = Flower.meet(grid, settings.min_sites, settings.waiting)
    estimator = settings.estimator()
    status = "finished"
    with Journalled(federation, folder.journal, settings.fingerprint) as journal:
        try:
            max_rounds = estimator.get_params().get("max_rounds")
            observe = folder.reporter(max_rounds, lambda: federation.silent)
            estimator.fit_federation(journal, on_round=observe)
        except KeyboardInterrupt:
            if not hasattr(estimator, "cluster_centers_"):
                raise
            status = "interrupted"
    clients = [{"name": name, "n_samples": size} for name, size in estimator.client_sizes_.items()]
    Model.from_estimator(estimator, algorithm=settings.algorithm, clients=clients).save(folder.model)
    folder.say(
        status,
        run=str(grid.run.run_id),
        n_rounds=int(estimator.n_iter_),
        stop_reason=estimator.stop_reason_,
        score_per_sample=float(estimator.score_per_sample_),
    )
    log.info("The model is in %s", folder.model)
