"""A federation of real processes on this machine: SuperLink, executor, gate and a SuperNode a site."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd

from fedkmeans import FederatedKMeans, InProcess, Site
from fedkmeans.flower.deploy import services
from fedkmeans.flower.deploy.files import to_toml
from fedkmeans.flower.deploy.folder import CONNECTION, FederationDetails, FederationFolder, new_federation
from fedkmeans.flower.deploy.join_file import JoinFile
from fedkmeans.flower.deploy.joining import Member, make_ready
from fedkmeans.flower.deploy.run_folder import RunFolder
from fedkmeans.flower.deploy.settings import RunSettings, to_run_config
from fedkmeans.model import Model
from fedkmeans.protocol.codec import decode
from fedkmeans.protocol.exchange import add_up
from fedkmeans.protocol.journal import Drawn, Heard, Opening, Present, Replies
from fedkmeans.protocol.journal_file import JournalFile

HERE = "127.0.0.1"


def wait_for(condition, what, timeout=120):
    """Wait until a condition holds, and return what it returned."""
    until = time.monotonic() + timeout
    while not (found := condition()):
        assert time.monotonic() < until, f"waited {timeout} s for {what}"
        time.sleep(0.2)
    return found


def family(pid):
    """A process and all that it started, and so on, as numbers."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def signal_family(pid, number):
    for one in family(pid):
        with suppress(ProcessLookupError):
            os.kill(one, number)


class Command:
    """A ``fedkmeans`` command in a process of its own."""

    def __init__(self, *arguments, log, user=None):
        self.log = Path(log)
        command = [sys.executable, "-m", "fedkmeans", *map(str, arguments)]
        place = {}
        if user is not None:  # another one: see `tests.service_user`
            command = user.command(*command[1:])
            place = {"cwd": user.home, "env": user.environment}
        self.start = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as file:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
                **place,
            )

    @property
    def said(self):
        # Messages are wrapped to the width of a screen.
        return " ".join(self.log.read_bytes()[self.start :].decode(errors="replace").split())

    def wait_to_say(self, pattern, timeout=120):
        return wait_for(lambda: re.search(pattern, self.said), f"{pattern!r} in {self.said!r}", timeout)

    def end(self, number=signal.SIGTERM, timeout=120):
        """Send a signal to the process alone, and return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout)

    def child(self, name):
        """Number of the process that it started whose command has this word."""

        def look():
            for pid in family(self.process.pid)[1:]:
                with suppress(OSError):
                    if name in Path(f"/proc/{pid}/cmdline").read_bytes().decode().replace("\0", " "):
                        return pid
            return None

        return wait_for(look, f"{name} among what {self.process.args} started", 20)


class SomeAnswer:
    """Sites in this process, of whom only those answer who did so in a run that is over."""

    def __init__(self, sites, answered):
        self.inner, self.answered = InProcess(sites), list(answered)

    @property
    def clients(self):
        return self.inner.clients

    def ask(self, query, clients):
        # A run that was interrupted does not write down who was asked for its score.
        names = self.answered.pop(0) if self.answered else clients
        assert set(names) <= set(clients)
        return dict(self.inner.ask(query, names))

    def total(self, query, clients):
        return add_up(self.ask(query, clients))


def who_answered(run):
    """Who answered in each exchange of a run, as its journal says."""
    file = JournalFile(run.journal)
    entries = [
        decode(file.read(index), (Opening, Present, Drawn, Heard), max_header=None)
        for index in range(len(file.places))
    ]
    file.close()
    answers = [entry.answer for entry in entries if isinstance(entry, Heard)]
    return [one.clients if isinstance(one, Replies) else one.answered for one in answers]


def check_model(run, sites, n_clusters=3, seed=5, everybody=False, **tuning):
    """Compare a run's model, to the last bit, with that of sites in this process that answer likewise."""
    answered = who_answered(run)
    if everybody and "clients_per_round" not in tuning:
        assert {tuple(names) for names in answered} == {tuple(site.name for site in sites)}
    model = Model.load(run.model)
    rounds = model.card["result"]["n_rounds"]
    estimator = FederatedKMeans(n_clusters, random_state=seed, **{**tuning, "max_rounds": rounds})
    federation = SomeAnswer(sites, answered)
    expected = estimator.fit_federation(federation)
    assert np.array_equal(model.centroids, expected.cluster_centers_)
    return federation


def free_ports(n):
    """Ports that nobody uses now; asked for together, so that they differ."""
    sockets = [socket.socket() for _ in range(n)]
    for one in sockets:
        one.bind((HERE, 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def blobs(n_sites=3, rows=60, columns=4, seed=0):
    """Sites whose rows lie around three places, each site with more of one."""
    rng = np.random.default_rng(seed)
    centres = 6 * rng.normal(size=(3, columns))
    sites = []
    for place in range(n_sites):
        which = rng.choice(3, size=rows + 10 * place, p=np.roll([0.6, 0.3, 0.1], place % 3))
        X = centres[which] + rng.normal(size=(len(which), columns))
        sites.append(Site(f"site-{place}", X, feature_names=tuple(f"x{j}" for j in range(columns))))
    return sites


@dataclass
class Running:
    """Processes of a federation, by name; `site-0` and so on are SuperNodes."""

    root: Path
    folder: FederationFolder
    sites: list
    listen: str = HERE
    members: dict[str, Member] = field(default_factory=dict)
    processes: dict = field(default_factory=dict)
    commands: dict[str, Command] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)

    def start_server(self, only=("superlink", "executor", "gate")):
        logs = self.folder / "logs"
        if "superlink" in only:
            self.processes["superlink"] = services.superlink(self.folder).start(logs)
            services.wait_until_up(self.folder, self.processes["superlink"])
            services.register_sites(self.folder)
        if "gate" in only:
            self.processes["gate"] = services.gate(self.folder, self.listen).start(logs)
        if "executor" in only:
            self.processes["executor"] = services.executor(self.folder).start(logs)

    def start_site(self, name, *before, **environment):
        """Start a site's SuperNode; `before` stands before its command."""
        member = self.members[name]
        program = services.supernode(member.join.server, member.folder, self.ports[name])
        program = replace(
            program, command=(*before, *program.command), environment={**program.environment, **environment}
        )
        self.processes[name] = program.start(member.folder)

    def join_site(self, name, *options, join=None):
        """Start a site as a person would: ``fedkmeans site join``; `join` is another join file for it."""
        member, site = self.members[name], next(site for site in self.sites if site.name == name)
        rows = self.root / f"{name}.parquet"
        pd.DataFrame(site.X, columns=list(site.feature_names)).to_parquet(rows)
        command = Command(
            *("site", "join", join or self.folder / "join" / f"{name}.toml", "--data", rows),
            *("--folder", member.folder, "--port", self.ports[name], *options),
            log=self.root / f"{name}.said",
        )
        key = name if join is None else f"{name} elsewhere"
        self.commands[key], self.processes[key] = command, command.process
        return command

    def serve(self):
        """Start the server as a person would: ``fedkmeans federation serve``."""
        command = Command(
            *("federation", "serve", self.folder.path, "--listen", self.listen), log=self.root / "serve.said"
        )
        self.commands["serve"], self.processes["serve"] = command, command.process
        return command

    def run_command(self, name, *options):
        """Start a run as a person would: ``fedkmeans federation run``."""
        command = Command(
            *("federation", "run", self.folder.path, "-k", 3, "--name", name, *options),
            log=self.root / f"{name}.said",
        )
        self.commands[f"run {name}"], self.processes[f"run {name}"] = command, command.process
        return RunFolder(self.folder / "runs" / name), command

    def kill(self, name):
        """End a process and all that it started by force."""
        process = self.processes.pop(name)
        signal_family(process.pid, signal.SIGKILL)
        process.wait(30)

    def kill_gently(self, name):
        """End a process as it wants to be ended: a site says goodbye."""
        services.end([self.processes.pop(name)])

    def node_status(self, name):
        listed = services.flwr(self.folder, "supernode", "list", CONNECTION)["nodes"]
        wanted = str(self.folder.nodes()[name])
        return next(node["status"] for node in listed if str(node["node-id"]) == wanted)

    def wait_for_sites(self, *names, timeout=150):
        nodes = {str(node): name for name, node in self.folder.nodes().items()}
        until = time.monotonic() + timeout
        while True:
            listed = services.flwr(self.folder, "supernode", "list", CONNECTION)["nodes"]
            online = {nodes.get(str(node["node-id"])) for node in listed if node["status"] == "online"}
            if set(names) <= online:
                return
            assert time.monotonic() < until, f"only {online} of {names} are online"
            time.sleep(0.5)

    def start_run(self, name="one", **settings):
        run = RunFolder(self.folder / "runs" / name)
        run.make()
        wish = RunSettings(folder=str(run.path), **settings)
        config = run.path / "run.toml"
        config.write_text(to_toml(to_run_config(wish)))
        run.say("starting")
        started = services.flwr(
            self.folder, "run", str(self.folder / "app"), CONNECTION, "--run-config", str(config)
        )
        return run, str(started["run-id"])

    def wait_for_run(self, run, timeout=400):
        """Wait until a run is over and return how it ended."""
        until = time.monotonic() + timeout
        while True:
            status = run.status()
            if status["status"] in ("finished", "interrupted", "failed", "stopped"):
                return status
            if time.monotonic() > until:
                raise AssertionError(f"the run is not over: {status}, {list(run.progress())[-1:]}")
            time.sleep(0.3)

    def wait_for_round(self, run, number, timeout=240):
        until = time.monotonic() + timeout
        while not any(line["round"] >= number for line in run.progress()):
            assert time.monotonic() < until, f"no round {number}: {run.status()}"
            time.sleep(0.2)

    def wait_for_line(self, run, condition, what, timeout=300):
        """Wait until the report of some round is so, and return it."""
        return wait_for(lambda: next(filter(condition, run.progress()), None), what, timeout)

    def flower_status(self, run_id):
        (found,) = services.flwr(self.folder, "list", CONNECTION, "--run-id", run_id)["runs"]
        return found

    def log(self, name):
        path = self.members[name].folder / "supernode.log" if name in self.members else None
        path = path or self.folder / "logs" / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""


@contextmanager
def federation(root, sites, start=None, host="localhost", listen=HERE, serve=False):
    """A federation that is running, with those of its sites in `start` connected (all by default).

    With `serve` its server is a command that is started as a person would start it.
    """
    names = [site.name for site in sites]
    port, internal, *ports = free_ports(2 + len(sites))
    settings = FederationDetails("trial", host, port, internal, tuple(names))
    folder = new_federation(root / "server", settings)
    running = Running(root, folder, sites, listen, ports=dict(zip(names, ports, strict=True)))
    for site in sites:
        join = JoinFile.read(folder / "join" / f"{site.name}.toml")
        running.members[site.name] = make_ready(join, site, root / site.name)
    try:
        if serve:
            running.serve().wait_to_say("may connect")
        else:
            running.start_server()
        for name in names if start is None else start:
            running.start_site(name)
        running.wait_for_sites(*(names if start is None else start))
        yield running
    finally:
        for process in running.processes.values():
            signal_family(process.pid, signal.SIGCONT)
        services.end(list(reversed(running.processes.values())))
