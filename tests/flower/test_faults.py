"""Federations of real processes that are killed, stopped, lied to and run out of disk.

Whoever answered in the end, the model is, to the last bit, that of sites in this process that answered
likewise (`check_model`).
"""

import shutil
import signal
import subprocess
import threading
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import uvicorn

from fedkmeans.errors import FederationError
from fedkmeans.flower.deploy import certificates, joining, services
from fedkmeans.flower.deploy.certificates import Certified
from fedkmeans.flower.deploy.folder import CONNECTION
from fedkmeans.flower.deploy.gate import Gate
from fedkmeans.flower.transport import WaitPolicy
from fedkmeans.protocol.codec import WIRE_VERSION
from tests.flower import liar
from tests.flower.processes import (
    HERE,
    blobs,
    check_model,
    federation,
    free_ports,
    signal_family,
    wait_for,
)

pytestmark = pytest.mark.faults

SEED = 5
# Longer than a run of these tests has rounds; runs are asked to stop when all that matters was seen.
MANY = {"max_rounds": 60, "min_rounds": 60}


def exactly(n):
    return {"max_rounds": n, "min_rounds": n}


def options_for(n):
    """The same for the command line."""
    return "--max-rounds", n, "--min-rounds", n, "--seed", SEED, "--timeout", 120


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """A federation whose server is a command: it watches its programs, and starts them again."""
    with federation(tmp_path_factory.mktemp("federation"), blobs(), serve=True) as found:
        yield found


def stop(running, run):
    run.ask_to_stop()
    assert running.wait_for_run(run)["status"] == "interrupted"


def missing(run, name):
    """Why a site was missing, one text per round; empty where it was not."""
    return [line["missing"].get(name, "") for line in run.progress()]


# --- sites that come and go ---------------------------------------------------------------------


def test_a_site_that_leaves_is_missed_and_one_that_comes_late_is_used(running):
    running.kill_gently("site-2")
    joined = running.join_site("site-2")
    joined.wait_to_say("Connected")
    running.wait_for_sites("site-2")
    assert joined.end(signal.SIGTERM) == 128 + signal.SIGTERM
    assert running.node_status("site-2") == "offline"
    run, _ = running.start_run("late", n_clusters=3, seed=SEED, tuning=MANY, waiting=WaitPolicy(timeout=120))
    running.wait_for_round(run, 1)
    running.join_site("site-2").wait_to_say("Connected")
    running.wait_for_line(run, lambda line: "site-2" in line["answered"], "site-2 to be used")
    stop(running, run)
    reasons = missing(run, "site-2")
    assert reasons[0] == "not connected"
    assert reasons[-1] == ""
    check_model(run, running.sites, **MANY)


def test_a_site_that_is_killed_is_missed_and_used_again_when_it_is_back(running):
    running.kill_gently("site-2")
    running.join_site("site-2").wait_to_say("Connected")
    waiting = WaitPolicy(timeout=20, cool_down=20)
    run, _ = running.start_run("killed", n_clusters=3, seed=SEED, tuning=MANY, waiting=waiting)
    running.wait_for_round(run, 1)
    running.kill("site-2")
    running.wait_for_line(run, lambda line: "site-2" in line["missing"], "site-2 to be missed")
    first = next(line["round"] for line in run.progress() if "site-2" in line["missing"])
    running.join_site("site-2")  # refused until the server has forgotten the one that was killed
    running.wait_for_line(
        run, lambda line: line["round"] > first and "site-2" in line["answered"], "site-2 to be back"
    )
    stop(running, run)
    reasons = [reason for reason in missing(run, "site-2") if reason]
    assert reasons[0] == "no answer within 20 s"
    assert set(reasons[1:]) <= {
        "did not answer in time lately",
        "not connected",
        "no answer within 20 s",
    }
    check_model(run, running.sites, **MANY)


def test_a_site_that_hangs_costs_one_timeout_and_is_then_left_alone_for_a_while(running):
    waiting = WaitPolicy(timeout=20, cool_down=40)
    run, _ = running.start_run("hangs", n_clusters=3, seed=SEED, tuning=MANY, waiting=waiting)
    running.wait_for_round(run, 1)
    signal_family(running.processes["site-1"].pid, signal.SIGSTOP)
    running.wait_for_line(
        run, lambda line: "lately" in line["missing"].get("site-1", ""), "site-1 to be left alone"
    )
    signal_family(running.processes["site-1"].pid, signal.SIGCONT)
    last = max(line["round"] for line in run.progress())
    running.wait_for_line(
        run, lambda line: line["round"] > last and "site-1" in line["answered"], "site-1 to be back"
    )
    stop(running, run)
    reasons = [reason for reason in missing(run, "site-1") if reason]
    assert reasons == ["no answer within 20 s"] + ["did not answer in time lately"] * (len(reasons) - 1)
    lines = list(run.progress())
    seconds = [after["time"] - before["time"] for before, after in pairwise(lines)]
    quiet = [took for took, why in zip(seconds, missing(run, "site-1")[1:], strict=True) if "lately" in why]
    assert max(quiet) < 20
    check_model(run, running.sites, **MANY)


LIES = {
    "shape": "weighted_sum has shape (4, 4), expected (3, 4)",
    "missing": "weighted_sum has values that are missing (NaN) or infinite",
    "huge": "weighted_sum is huge compared with weight",
    "version": f"it speaks version 9{WIRE_VERSION} of the wire format",
    "few": "",
    "replay": "it belongs to another exchange",
    "name": "it is signed 'site-0'",
    "error": "an error; the site's own log says more",
}


def test_what_a_site_should_not_have_answered_is_not_counted(running, tmp_path):
    shutil.copy(liar.__file__, tmp_path / "sitecustomize.py")
    # It describes its rows and helps with the start; the first round is true, and so is the score.
    (tmp_path / "lies").write_text(" ".join(["truth"] * 3 + list(LIES)))
    running.kill_gently("site-2")
    running.start_site("site-2", PYTHONPATH=str(tmp_path))
    running.wait_for_sites("site-2")
    rounds = exactly(1 + len(LIES))
    run, _ = running.start_run(
        "liar", n_clusters=3, seed=SEED, tuning=rounds, waiting=WaitPolicy(timeout=90, cool_down=0)
    )
    assert running.wait_for_run(run)["status"] == "finished"
    found = missing(run, "site-2")
    assert found[0] == ""
    for (kind, expected), reason in zip(LIES.items(), found[1:], strict=True):
        assert reason.startswith("its reply is refused: "), kind
        assert expected in reason, kind
        assert "4711.25" not in reason
    check_model(run, running.sites, **rounds)
    running.kill_gently("site-2")
    running.start_site("site-2")
    running.wait_for_sites("site-2")


# --- who is let in, and who is trusted ------------------------------------------------------------


@pytest.mark.short
def test_a_site_with_a_key_that_nobody_registered_is_told_so(running, monkeypatch, tmp_path):
    monkeypatch.setattr(joining, "_MOST_REFUSED_S", 3.0)
    key = tmp_path / "key"
    key.write_bytes(certificates.site_private(certificates.new_key()))
    site = running.sites[0]
    member = joining.make_ready(running.members[site.name].join, site, tmp_path / "site", key)
    said = []
    (port,) = free_ports(1)
    with pytest.raises(FederationError, match=r"The server refuses the key of 'site-0'.*Ask who runs"):
        joining.stay_connected(member, said.append, port)
    assert said
    assert all("Failed to activate SuperNode" in line for line in said)


def test_a_site_whose_key_was_removed_is_sent_away_and_told_so(tmp_path, monkeypatch):
    monkeypatch.setattr(joining, "_MOST_REFUSED_S", 3.0)
    with federation(tmp_path, blobs(2), start=["site-0"]) as running:
        said, ended = [], []

        def stay():
            with pytest.raises(FederationError, match="The server refuses the key of 'site-1'"):
                joining.stay_connected(running.members["site-1"], said.append, running.ports["site-1"])
            ended.append(True)

        thread = threading.Thread(target=stay)
        thread.start()
        running.wait_for_sites("site-1")
        node = running.folder.nodes()["site-1"]
        services.flwr(running.folder, "supernode", "unregister", str(node), CONNECTION)
        thread.join(240)
        assert ended, said
        # The others go on without it.
        run, _ = running.start_run("without", n_clusters=3, seed=SEED, tuning={"max_rounds": 1})
        assert running.wait_for_run(run)["status"] == "finished"
        assert missing(run, "site-1") == ["not connected"]


@pytest.fixture
def other_gate(running, tmp_path):
    """Start a gate with another certificate, and return a join file that leads to it."""
    started = []

    def start(certified):
        (tmp_path / "server.crt").write_bytes(certified.certificate)
        (tmp_path / "server.key").write_bytes(certified.key)
        (port,) = free_ports(1)
        program = services.gate(running.folder, HERE)
        command = list(program.command)
        for option, value in (
            ("--port", str(port)),
            ("--certificate", str(tmp_path / "server.crt")),
            ("--key", str(tmp_path / "server.key")),
        ):
            command[command.index(option) + 1] = value
        started.append(replace(program, command=tuple(command)).start(tmp_path))
        join = replace(running.members["site-0"].join, server=f"localhost:{port}")
        member = replace(running.members["site-0"], join=join)
        file = tmp_path / "join.toml"
        file.write_text(join.write())
        wait_for(lambda: not _is_silent(member), "the gate")
        return file

    yield start
    services.end(started)


def _is_silent(member):
    try:
        return joining.check_server(member) is not None
    except FederationError:
        return False


def authority_of(running):
    private = running.folder / "private/authority.key"
    return Certified(private.read_bytes(), (running.folder / "authority.crt").read_bytes())


@pytest.mark.short
def test_a_server_whose_certificate_has_expired_is_not_joined(running, other_gate):
    file = other_gate(certificates.new_server(authority_of(running), ["localhost"], days=-1))
    joined = running.join_site("site-0", "--folder", file.parent / "site", join=file)
    assert joined.process.wait(120) == 2
    joined.wait_to_say(
        "The certificate of localhost:[0-9]+ has expired. Ask who runs the federation to renew it"
    )


@pytest.mark.short
def test_a_server_with_a_certificate_of_somebody_else_is_not_joined(running, other_gate):
    file = other_gate(certificates.new_server(certificates.new_authority("trial"), ["localhost"]))
    joined = running.join_site("site-0", "--folder", file.parent / "site", join=file)
    assert joined.process.wait(120) == 2
    joined.wait_to_say("Whoever answers at localhost:[0-9]+ is not the server of this federation")


def test_a_site_that_went_deaf_is_connected_again(running, tmp_path):
    # Flower's SuperNode never asks again after an answer that it does not expect, and stays alive.
    fault = tmp_path / "fault"

    class Faulty(Gate):
        async def _pass(self, scope, receive, send):
            if fault.exists():
                await send({"type": "http.response.start", "status": 500, "headers": []})
                await send({"type": "http.response.body", "body": b"fault"})
            else:
                await super()._pass(scope, receive, send)

    (port,) = free_ports(1)
    folder = running.folder
    gate = Faulty(f"https://{services.address(folder)}", str(folder / "authority.crt"))
    keys = {"ssl_certfile": folder / "private/server.crt", "ssl_keyfile": folder / "private/server.key"}
    server = uvicorn.Server(uvicorn.Config(gate, host=HERE, port=port, log_level="error", **keys))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        running.kill_gently("site-2")
        file = tmp_path / "join.toml"
        file.write_text(replace(running.members["site-2"].join, server=f"localhost:{port}").write())
        joined = running.join_site("site-2", "--folder", tmp_path / "site", join=file)
        joined.wait_to_say("Connected")
        fault.touch()
        joined.wait_to_say("Not connected .*Server error", 60)
        fault.unlink()
        joined.wait_to_say("Not connected.* Connected", 180)
        running.wait_for_sites("site-2")
        assert joined.end() == 128 + signal.SIGTERM
    finally:
        server.should_exit = True
        thread.join(30)
        running.start_site("site-2")
        running.wait_for_sites("site-2")


# --- a server that breaks ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "program", [pytest.param("flower-superlink", marks=pytest.mark.short), "fedkmeans.flower.deploy.gate"]
)
def test_a_program_of_the_server_that_is_killed_is_started_again_and_the_run_goes_on(running, program):
    rounds = exactly(4)
    run, _ = running.start_run(
        f"killed-{program[-4:]}", n_clusters=3, seed=SEED, tuning=rounds, waiting=WaitPolicy(timeout=120)
    )
    running.wait_for_round(run, 1)
    pid = running.commands["serve"].child(program)
    subprocess.run(["kill", "-9", str(pid)], check=True)
    assert running.wait_for_run(run)["status"] == "finished"
    running.commands["serve"].wait_to_say("ended .exit code -9.*it is started again in 1 s")
    assert running.commands["serve"].child(program) != pid
    check_model(run, running.sites, everybody=True, **rounds)


@pytest.mark.parametrize("memory", ["server", "client"])
def test_a_run_whose_executor_is_killed_is_resumed_and_ends_as_if_nothing_had_happened(running, memory):
    tuning = {**exactly(4), "memory": memory}
    options = [*options_for(4), "--memory", memory]
    if memory == "client":
        tuning["clients_per_round"] = 2
        options += ["--clients-per-round", 2]
    name = f"executor-{memory}"
    run, command = running.run_command(name, *options)
    running.wait_for_round(run, 2)
    executor = running.commands["serve"].child("flower-superexec")
    subprocess.run(["kill", "-9", str(executor)], check=True)
    assert command.process.wait(240) == 2
    hint = command.wait_to_say(f"go on with: fedkmeans (federation run .* --name {name} --resume)")
    assert not run.model.exists()
    resume(running, run, hint)
    check_model(run, running.sites, everybody=True, **tuning)


def resume(running, run, hint):
    """Do as one was told."""
    _, again = running.run_command(run.path.name, *hint.group(1).split(f"--name {run.path.name}")[1].split())
    assert again.process.wait(400) == 0, again.said
    assert run.status()["status"] == "finished"
    rounds = [line["round"] for line in run.progress()]
    assert rounds == list(range(1, len(rounds) + 1))  # each is told once


def test_a_server_that_is_killed_can_be_started_again_and_the_run_resumed(running):
    run, command = running.run_command("server", *options_for(4))
    running.wait_for_round(run, 1)
    running.commands["serve"].end(signal.SIGKILL)
    server = running.serve()
    server.wait_to_say("may connect")
    assert command.process.wait(300) == 2, command.said
    resume(running, run, command.wait_to_say("go on with: fedkmeans (federation run .* --resume)"))
    check_model(run, running.sites, everybody=True, **exactly(4))


def test_ctrl_c_ends_a_run_after_its_round_and_leaves_a_model(running):
    run, command = running.run_command("ctrl-c", *options_for(60))
    running.wait_for_round(run, 1)
    assert command.end(signal.SIGINT) == 130
    assert run.status()["status"] == "interrupted"
    command.wait_to_say("The run ends after this round.*The model is in")
    check_model(run, running.sites, **MANY)


# --- a full disk --------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(running):
    """Let the runs of a federation lie on a disk of one megabyte."""
    runs = running.folder / "runs"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(runs)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"this machine mounts no small disk: {mounted.stderr.decode().strip()}")
    yield runs
    subprocess.run(["umount", "-l", str(runs)], check=True)


def test_a_run_on_a_full_disk_says_so_and_goes_on_when_there_is_room(running, small_disk):
    run, command = running.run_command("full", *options_for(6))
    running.wait_for_round(run, 1)
    ballast = small_disk / "ballast"
    fill(ballast)
    assert command.process.wait(120) == 2
    hint = command.wait_to_say("go on with: fedkmeans (federation run .* --resume)")
    assert "No space left on device" in command.said
    assert str(run.path) in command.said.replace(" ", "")
    assert "Make room on the disk" in command.said
    assert not run.model.exists()
    ballast.unlink()
    resume(running, run, hint)
    check_model(run, running.sites, everybody=True, **exactly(6))


def fill(path: Path):
    """Write until there is no room."""
    with path.open("wb", buffering=0) as file:
        while True:
            try:
                file.write(b"x" * 4096)
            except OSError:
                return
