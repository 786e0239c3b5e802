"""Real processes on loopback, with TLS and keys: the same model as in process, and nobody let in."""

import json
import signal
import sqlite3
import ssl
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.proto import fleet_pb2, heartbeat_pb2, message_pb2
from flwr.proto.node_pb2 import Node
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from fedkmeans import FederatedKMeans, InProcess
from fedkmeans.flower.deploy import services
from fedkmeans.flower.deploy.folder import CONNECTION, FederationFolder
from fedkmeans.flower.transport import WaitPolicy
from fedkmeans.model import Model
from tests.flower.processes import HERE, blobs, check_model, federation, signal_family, wait_for

pytestmark = pytest.mark.slow

WAITING = WaitPolicy(timeout=60, wait=90)
FOREIGN_APP = Path(__file__).parent / "foreign_app"


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with federation(tmp_path_factory.mktemp("federation"), blobs()) as found:
        yield found


@pytest.mark.parametrize(
    "tuning", [{"max_rounds": 3}, {"memory": "client", "clients_per_round": 2, "max_rounds": 3}]
)
def test_the_model_is_that_of_a_federation_in_process(running, tuning):
    run, _ = running.start_run(f"same-{len(tuning)}", n_clusters=3, seed=5, tuning=tuning, waiting=WAITING)
    status = running.wait_for_run(run)
    assert status["status"] == "finished", status
    expected = FederatedKMeans(3, random_state=5, **tuning).fit_federation(InProcess(running.sites))
    model = Model.load(run.model)
    np.testing.assert_allclose(model.centroids, expected.cluster_centers_, rtol=0, atol=1e-9)
    assert model.card["result"]["n_rounds"] == expected.n_iter_
    assert model.card["result"]["score_per_sample"] == pytest.approx(expected.score_per_sample_, rel=1e-12)
    sizes = {client["name"]: client["n_samples"] for client in model.card["data"]["clients"]}
    assert sizes == {site.name: len(site.X) for site in running.sites}
    lines = list(run.progress())
    assert [line["round"] for line in lines] == list(range(1, expected.n_iter_ + 1))
    assert all(not line["missing"] for line in lines)
    check_model(run, running.sites, everybody=True, **tuning)


def post(running, path, body=b"", port=None):
    """Send a request to the gate as a site could, with the certificate it has."""
    member = running.members["site-0"]
    context = ssl.create_default_context(cafile=str(member.folder / "authority.crt"))
    address = f"https://{HERE}:{port or running.folder.read().port}{path}"
    request = urllib.request.Request(
        address, data=body, method="POST", headers={"Content-Type": "application/protobuf"}
    )
    try:
        with urllib.request.urlopen(request, timeout=20, context=context) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize(
    "path",
    [
        "/v1/control/start-run",
        "/v1/control/register-node",
        "/v1/control/list-nodes",
        "/v1/control/stream-logs",
        "/v1/runtime/acquire-task",
        "/v1/runtime/pull-messages",
        "/v1/fleet/register-node",
        "/v1/fleet/../control/list-nodes",
        "/v1/fleet/%2e%2e/control/list-nodes",
        "//v1/control/list-nodes",
        "/v1/fleet/pull-messages/",
        "/v1/fleet/pull-messages?x=1",
        "/docs",
        "/health",
    ],
)
def test_the_gate_passes_nothing_but_what_sites_need(running, path):
    assert post(running, path) == 404


def test_what_the_gate_holds_back_is_open_behind_it(running):
    # The reason for the gate: without it, whoever has the public certificate could list nodes and more.
    assert post(running, "/v1/control/list-nodes", port=running.folder.read().internal_port) == 200


def test_a_site_cannot_use_flowers_own_commands(running, tmp_path):
    settings = running.folder.read()
    # A folder whose SuperLink would be the gate.
    outside = FederationFolder(tmp_path)
    outside.write(replace(settings, port=settings.internal_port, internal_port=settings.port))
    (tmp_path / "authority.crt").write_bytes((running.folder / "authority.crt").read_bytes())

    for command in (
        ("run", str(running.folder / "app")),
        ("supernode", "register", str(running.folder / "keys/site-0.pub")),
        ("supernode", "list"),
        ("list",),
    ):
        with pytest.raises(services.FederationError, match="404"):
            services.flwr(outside, *command, CONNECTION)


def test_a_site_reads_no_messages_without_its_key(running):
    # Who signs nothing is refused by the SuperLink itself: the gate passes this path on.
    assert post(running, "/v1/fleet/pull-messages") == 401


def signed_by(running, name):
    """Flower's own client of the server, as a site's SuperNode uses it, with that site's key."""
    member = running.members[name]
    key = load_ssh_private_key((member.folder / "key").read_bytes(), password=None)
    signer = NodeAuthHttpInterceptor(key, key.public_key())
    return FleetHttpClient.from_server_address(
        member.join.server,
        insecure=False,
        root_certificates=str(member.folder / "authority.crt"),
        interceptors=[RuntimeVersionHttpInterceptor(component_name="SuperNode"), signer],
    )


def status_of(call, request):
    try:
        call(request)
    except httpx.HTTPStatusError as error:
        return error.response.status_code
    return 200


def waiting_for(running, node):
    """The latest message that lies at the SuperLink for a node: its name and its run."""
    with sqlite3.connect(f"file:{running.folder / 'state/superlink.db'}?mode=ro", uri=True) as database:
        sql = "select message_id, run_id from message_ins where dst_node_id = ? and delivered_at = ''"
        signed = node - 2**64 if node >= 2**63 else node
        return database.execute(sql, (signed,)).fetchone()


def pushed(node, **metadata):
    told = message_pb2.Metadata(message_id="0" * 64, message_type="query.fedkmeans", ttl=60, **metadata)
    return fleet_pb2.PushMessagesRequest(
        node=Node(node_id=node),
        messages_list=[message_pb2.Message(metadata=told)],
        message_object_trees=[message_pb2.ObjectTree(object_id="0" * 64)],
    )


def test_a_site_with_its_key_neither_reads_nor_answers_for_another(running):
    own, other = (running.folder.nodes()[name] for name in ("site-0", "site-1"))
    signal_family(running.processes["site-1"].pid, signal.SIGSTOP)  # so that what is meant for it stays there
    run, _ = running.start_run("spied", n_clusters=3, seed=5, tuning={"max_rounds": 1}, waiting=WAITING)
    message, run_id = wait_for(lambda: waiting_for(running, other), "a message for site-1")
    run_id %= 2**64
    with signed_by(running, "site-0") as client:
        heartbeat = heartbeat_pb2.SendNodeHeartbeatRequest(node=Node(node_id=own), heartbeat_interval=30)
        assert client.SendNodeHeartbeat(heartbeat).success  # so what follows is not refused for its form
        pull = fleet_pb2.PullMessagesRequest(node=Node(node_id=other))
        assert status_of(client.PullMessages, pull) == 401
        answer = {"run_id": run_id, "src_node_id": other, "dst_node_id": 1, "reply_to_message_id": message}
        assert status_of(client.PushMessages, pushed(other, **answer)) == 401
        # Flower checks who signs, and not whose the messages are; the gate does.
        assert status_of(client.PushMessages, pushed(own, **answer)) == 400
        question = {"run_id": run_id, "src_node_id": 1, "dst_node_id": other}
        assert status_of(client.PushMessages, pushed(own, **question)) == 400
        new = fleet_pb2.RegisterNodeFleetRequest(public_key=b"a key")
        assert status_of(client.RegisterNode, new) == 404
        gone = fleet_pb2.DeactivateNodeRequest(node_id=other)
        assert status_of(client.DeactivateNode, gone) == 401
    assert waiting_for(running, other) == (message, run_id - 2**64 if run_id >= 2**63 else run_id)
    signal_family(running.processes["site-1"].pid, signal.SIGCONT)
    assert running.wait_for_run(run)["status"] == "finished"
    check_model(run, running.sites, everybody=True, max_rounds=1)


def test_a_site_runs_our_app_whatever_the_server_sends(running, tmp_path):
    # One that was started as Flower would start it shows what the others are kept from.
    open_site, *kept = sorted(running.members)
    running.kill_gently(open_site)
    running.start_site(open_site, PATH=services.search_path())
    running.wait_for_sites(open_site)
    out = tmp_path / "obeyed.json"
    services.flwr(running.folder, "run", str(FOREIGN_APP), CONNECTION, "--run-config", f'out="{out}"')
    wait_for(lambda: out.exists() and out.read_text(), "the other app")
    assert sorted(json.loads(out.read_text())) == [False] * len(kept) + [True]
    assert (running.members[open_site].folder / "was-here").exists()
    for name in kept:
        assert not (running.members[name].folder / "was-here").exists()
        assert not list((running.members[name].folder / "flower").rglob("*foreign*"))
