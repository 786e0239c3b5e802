"""Static checks of units, containers and proxies, and of pages that need a server."""

from __future__ import annotations

import configparser
import re
import shlex
import tomllib
from pathlib import Path

import pytest
import typer
import yaml

from fedkmeans.cli import app

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples" / "federation"
PAGES = ("README.md", "docs/how-to/federation.md", "docs/operators.md")
UNITS = ("fedkmeans-server.service", "fedkmeans-site@.service")


def check_command(words):
    """Raise unless the words after `fedkmeans` are a valid command with valid options; nothing is run."""
    command, context = typer.main.get_command(app), None
    name, rest = "fedkmeans", list(words)
    while hasattr(command, "commands"):
        assert rest, "a command is missing"
        assert rest[0] in command.commands, rest[0]
        name, command, rest = rest[0], command.commands[rest[0]], rest[1:]
    context = command.make_context(name, rest)
    assert context.params


def test_the_check_finds_errors():
    check_command(["federation", "serve", "hospitals", "--listen", "127.0.0.1"])
    with pytest.raises(Exception, match="--nonsense"):
        check_command(["federation", "serve", "hospitals", "--nonsense"])
    with pytest.raises(AssertionError, match="surf"):
        check_command(["federation", "surf", "hospitals"])
    with pytest.raises(Exception, match="data"):
        check_command(["site", "join", "north.toml"])


def fenced(page, language):
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def typed(page, program):
    """Commands in blocks of shell, each as its words."""
    lines = "".join(fenced(page, "sh")).replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.startswith(f"{program} ")]


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_pages_have_options_that_exist(page):
    commands = typed(page, "fedkmeans")
    assert commands or page == "docs/operators.md"
    for words in commands:
        check_command(words[1:])


# --- containers --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compose():
    return yaml.safe_load((EXAMPLES / "compose.yaml").read_text(encoding="utf-8"))


def test_services_run_commands_that_exist(compose):
    assert set(compose["services"]) == {"server", "site"}
    for service in compose["services"].values():
        check_command(service["command"])


def test_services_are_built_from_files_that_exist(compose):
    for service in compose["services"].values():
        context = (EXAMPLES / service["build"]["context"]).resolve()
        assert context == ROOT
        assert (context / service["build"]["dockerfile"]).samefile(EXAMPLES / "Dockerfile")


def test_services_mount_what_their_commands_name(compose):
    for service in compose["services"].values():
        mounted = {volume.split(":")[1] for volume in service["volumes"]}
        named = {word for word in service["command"] if word.startswith("/")}
        assert {f"/{Path(word).parts[1]}" for word in named} == mounted


def test_only_the_port_for_sites_is_published(compose):
    assert compose["services"]["server"]["ports"] == ["9443:9443"]
    assert "ports" not in compose["services"]["site"]


def test_services_cannot_do_more_than_they_need(compose):
    for service in compose["services"].values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]


def test_the_image_is_built_from_files_that_exist():
    dockerfile = (EXAMPLES / "Dockerfile").read_text(encoding="utf-8")
    copied = [source for line in re.findall(r"^COPY (.+)$", dockerfile, re.M) for source in line.split()[:-1]]
    assert copied
    assert all((ROOT / source).exists() for source in copied)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {project["readme"], *project["license-files"]} <= set(copied)
    (extra,) = re.findall(r"pip install .*'\.\[(\w+)\]'", dockerfile)
    assert extra in project["optional-dependencies"]
    (entry,) = re.findall(r'ENTRYPOINT \["(\w+)"\]', dockerfile)
    assert entry in project["scripts"]


# --- systemd -----------------------------------------------------------------------------------


def unit(name):
    parser = configparser.ConfigParser(interpolation=None, comment_prefixes="#", strict=True)
    parser.optionxform = str
    parser.read_string((EXAMPLES / name).read_text(encoding="utf-8"))
    return parser


@pytest.mark.parametrize("name", UNITS)
def test_units_run_commands_that_exist(name):
    program, *words = shlex.split(unit(name)["Service"]["ExecStart"])
    assert Path(program).name == "fedkmeans"
    check_command([word.replace("%i", "city") for word in words])


@pytest.mark.parametrize("name", UNITS)
def test_units_may_write_where_their_commands_do(name):
    service = unit(name)["Service"]
    assert service["ProtectSystem"] == "strict"
    state = f"/var/lib/{service['StateDirectory']}/"
    written = [word for word in shlex.split(service["ExecStart"]) if word.startswith("/var/")]
    assert len(written) == 1
    assert written[0].startswith(state)
    assert service["Environment"] == f"XDG_CACHE_HOME=/var/cache/{service['CacheDirectory']}"


@pytest.mark.parametrize("name", UNITS)
def test_units_accept_the_exit_status_of_a_stopped_command(name):
    service = unit(name)["Service"]
    assert service["SuccessExitStatus"] == "143"
    assert service["KillMode"] == "mixed"  # the command itself stops the processes that it started


# --- Flower and nginx --------------------------------------------------------------------------


def test_nginx_forwards_the_same_paths_as_the_gate():
    gate = pytest.importorskip("fedkmeans.flower.deploy.gate", reason="needs the extra flower")
    text = (EXAMPLES / "nginx.conf").read_text(encoding="utf-8")
    (prefix, steps), *others = re.findall(r"location ~ \^(\S+?)\(([^)]+)\)\$ {", text)
    assert not others
    assert {f"{prefix}{step}".encode() for step in steps.split("|")} == gate.PASSED
    assert re.search(r"location / \{ return 404; \}", text)
    (size,) = re.findall(r"client_max_body_size (\d+)m;", text)
    assert int(size) * 2**20 == gate.MAX_BODY


def test_nginx_listens_on_the_port_for_sites_and_forwards_to_the_gate():
    text = (EXAMPLES / "nginx.conf").read_text(encoding="utf-8")
    new = typer.main.get_command(app).commands["federation"].commands["new"]
    defaults = {option.name: option.default for option in new.params}
    assert f"listen {defaults['port']} ssl;" in text
    (gate,) = re.findall(r"server 127\.0\.0\.1:(\d+);", text)
    assert int(gate) not in (defaults["port"], defaults["internal_port"])
    assert f"port = {gate}" in (ROOT / "docs/operators.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    pytest.importorskip("flwr", reason="needs the extra flower")
    from fedkmeans.flower.deploy.folder import FederationDetails, new_federation

    path = tmp_path_factory.mktemp("federations") / "hospitals"
    return new_federation(path, FederationDetails("hospitals", "localhost", 9443, 9444, ("city",)))


@pytest.mark.parametrize("name", ["superlink", "executor", "gate"])
def test_the_how_to_starts_flowers_programs_as_we_do(name, folder):
    from fedkmeans.flower.deploy import services

    program = getattr(services, name)(folder)
    ours = [word.replace(str(folder.path), "hospitals") for word in program.command]
    ours[0] = Path(ours[0]).name.rstrip("0123456789.")
    assert ours in typed("docs/how-to/federation.md", ours[0])


def test_the_how_to_starts_a_supernode_as_we_do():
    services = pytest.importorskip("fedkmeans.flower.deploy.services", reason="needs the extra flower")
    program = services.supernode("localhost:9443", Path("/ABSOLUTE/PATH/city"), 9445)
    # Only the configuration of the node needs an absolute path.
    options = [word.removeprefix("/ABSOLUTE/PATH/") for word in program.command[1:]]
    ours = [Path(program.command[0]).name, *options]
    text = (ROOT / "docs/how-to/federation.md").read_text(encoding="utf-8")
    shown = [shlex.split(code) for code in re.findall(r"`(flower-supernode [^`]+)`", text)]
    assert ours in shown


def test_the_how_to_sets_what_we_set_in_the_environment(folder):
    from fedkmeans.flower.deploy import services

    (block,) = (block for block in fenced("docs/how-to/federation.md", "sh") if "FEDKMEANS_NODES=" in block)
    exported = dict(word.split("=", 1) for word in shlex.split(block) if word != "export")
    exported = {name: value.replace("$PWD/", "") for name, value in exported.items()}
    ours = services.executor(folder).environment
    assert exported == {name: value.replace(str(folder.path), "hospitals") for name, value in ours.items()}


def test_the_how_to_configures_flower_as_we_do(folder):
    from fedkmeans.flower.deploy import services

    services.configure(folder)
    ours = (folder / "state/flower/config.toml").read_text(encoding="utf-8")
    ours = ours.replace(str(folder.path.resolve()), "/ABSOLUTE/PATH/hospitals")
    assert tomllib.loads(ours) in [
        tomllib.loads(code) for code in fenced("docs/how-to/federation.md", "toml")
    ]
