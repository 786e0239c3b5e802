"""A federation whose server and sites are services: no home, and an installation that they cannot write."""

import signal
from contextlib import ExitStack

import numpy as np
import pandas as pd

from fedkmeans import FederatedKMeans, InProcess
from fedkmeans.model import Model
from tests.flower.processes import Command, blobs, free_ports, signal_family
from tests.service_user import service_user


def test_the_model_is_that_of_a_federation_in_process(tmp_path):
    sites = blobs(n_sites=2)
    port, internal, *ports = free_ports(4)
    with service_user() as service, ExitStack() as at_the_end:

        def start(*arguments):
            name = "-".join(map(str, arguments[:3])).replace("/", "-")
            command = Command(*arguments, log=tmp_path / f"{name}.said", user=service)
            at_the_end.callback(signal_family, command.process.pid, signal.SIGKILL)
            return command

        names = [argument for site in sites for argument in ("--site", site.name)]
        address = ("--host", "localhost", "--port", port, "--internal-port", internal)
        made = start("federation", "new", "server", *address, *names)
        assert made.process.wait(60) == 0, made.said
        served = start("federation", "serve", "server", "--listen", "127.0.0.1")
        served.wait_to_say("may connect")
        joined = []
        for site, own_port in zip(sites, ports, strict=True):
            rows = service.home / f"{site.name}.csv"
            pd.DataFrame(site.X, columns=list(site.feature_names)).to_csv(rows, index=False)
            join = ("site", "join", f"server/join/{site.name}.toml", "--data", rows.name, "--port", own_port)
            joined.append(start(*join))
        for site_process in joined:
            site_process.wait_to_say("Connected")
        run = start("federation", "run", "server", "-k", 3, "--seed", 5, "--max-rounds", 1, "--name", "one")
        assert run.process.wait(240) == 0, run.said
        for process in (run, served):
            assert "Traceback" not in process.said
            assert "Matplotlib" not in process.said
        folder = service.home / "server/runs/one"
        assert (folder / "report.html").exists()
        expected = FederatedKMeans(3, random_state=5, max_rounds=1).fit_federation(InProcess(sites))
        np.testing.assert_array_equal(Model.load(folder / "model").centroids, expected.cluster_centers_)
