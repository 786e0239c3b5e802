"""Federations on the command line, as far as one machine without a running server goes."""

import json
import shutil
import socket
import ssl
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fedkmeans.cli import typer_app
from fedkmeans.flower.deploy.certificates import (
    Certified,
    new_authority,
    new_key,
    new_server,
    site_private,
    site_public,
)
from fedkmeans.flower.deploy.folder import FederationFolder
from fedkmeans.flower.deploy.join_file import JoinFile
from fedkmeans.flower.deploy.run_folder import RunFolder
from fedkmeans.flower.deploy.site_folder import open_site

from .conftest import write_client

pytestmark = pytest.mark.slow

NEW = "federation new hospitals --host localhost --port 9443 --internal-port 9 --site north --site south"


@pytest.fixture
def hospitals(run):
    """A federation of two sites, whose server does not run: nobody listens at port 9."""
    outcome = run(NEW)
    assert outcome.code == 0, outcome.err
    return FederationFolder(Path("hospitals"))


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


# --- help ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["federation", "site"])
def test_a_group_alone_shows_its_help(run, command):
    outcome = run(command)
    assert outcome.code == 2
    assert "Examples" in outcome.out


def test_help_needs_no_flower():
    code = (
        "import sys\nfrom fedkmeans.cli import app\n"
        "for line in ('federation --help', 'federation run --help', 'site join --help'):\n"
        "    try: app(line.split())\n"
        "    except SystemExit as end: assert end.code == 0\n"
        "heavy = {'flwr', 'cryptography', 'httpx', 'uvicorn'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    "line",
    [
        NEW,
        "federation serve x",
        "federation run x -k 2",
        "federation status x",
        "federation renew x",
        "site join x.toml --data x.csv",
    ],
)
def test_without_flower_each_command_says_how_to_get_it(line, refused, monkeypatch):
    monkeypatch.setattr(typer_app, "find_spec", lambda name: None)
    assert refused(line) == (
        "Error: federations run on Flower, which is not installed; pip install 'fedkmeans[flower]'"
    )


# --- new -----------------------------------------------------------------------------------------


def test_new_makes_a_folder_and_says_what_to_do_with_it(run):
    outcome = run([*NEW.split(), "--columns", "age,weight", "--name", "Nordkliniken"])
    assert outcome.code == 0, outcome.err
    assert "Nordkliniken, 2 sites" in outcome.out
    assert "hospitals/join/north.toml" in outcome.out
    assert "fedkmeans federation serve hospitals" in outcome.out
    found = FederationFolder(Path("hospitals")).read()
    assert (found.name, found.host, found.port, found.internal_port) == ("Nordkliniken", "localhost", 9443, 9)
    assert (found.sites, found.columns) == (("north", "south"), ("age", "weight"))
    assert JoinFile.read(Path("hospitals/join/south.toml")).columns == ("age", "weight")
    assert stat.S_IMODE(Path("hospitals").stat().st_mode) == 0o700


def test_a_federation_is_called_after_its_folder(hospitals):
    assert hospitals.read().name == "hospitals"


def test_a_site_may_bring_its_own_key(run):
    key = new_key()
    Path("south.pub").write_bytes(site_public(key.public_key()))
    assert run(f"{NEW} --public-key south=south.pub").code == 0
    assert Path("hospitals/keys/south.pub").read_bytes() == site_public(key.public_key())
    assert JoinFile.read(Path("hospitals/join/south.toml")).key == ""
    assert JoinFile.read(Path("hospitals/join/north.toml")).key


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--site north", "two sites have the same name"),
        ("--site a/b", "'a/b' cannot be called so"),
        ("--internal-port 9443", "both 9443; they must differ"),
        ("--port 99999", "at most 65535"),
        ("--port x", "--port"),
        ("--host https://x", "leave out https://"),
        ("--host münchen.de", "xn--"),
        ("--columns age,age", "two columns have the same name"),
        ("--public-key south", "--public-key must be SITE=FILE, got 'south'"),
        ("--public-key south=absent.pub", "'absent.pub': No such file or directory"),
        ("--public-key south=notes.txt", "notes.txt holds no public key in OpenSSH's format"),
        ("--public-key west=good.pub", "a key is given for 'west', which is no site"),
    ],
)
def test_new_refuses_what_makes_no_sense(options, said, refused):
    Path("notes.txt").write_text("hello")
    Path("good.pub").write_bytes(site_public(new_key().public_key()))
    assert said in refused(f"{NEW} {options}")


def test_new_does_not_touch_what_is_there(refused):
    Path("hospitals").mkdir()
    Path("hospitals/notes.txt").write_text("mine")
    assert "'hospitals' exists already; choose a new folder" in refused(NEW)


# --- status and renew ----------------------------------------------------------------------------


def test_status_without_a_server(run, hospitals):
    outcome = run("federation status hospitals")
    assert outcome.code == 0, outcome.err
    for words in ("not running", "good for 365 days", "site north", "site south", "unknown"):
        assert words in outcome.out
    found = json.loads(run("federation status hospitals --json").out)
    assert found["server"] is False
    assert found["sites"] == {"north": "unknown", "south": "unknown"}
    assert found["runs"] == {}


def test_status_tells_how_runs_stand(run, hospitals):
    one = RunFolder(hospitals / "runs" / "spring")
    one.make()
    one.say("failed", reason="0 site(s) answered")
    RunFolder(hospitals / "runs" / "summer").make()
    out = run("federation status hospitals").out
    assert "failed, 0 rounds: 0 site(s) answered" in out
    assert "not begun, 0 rounds" in out
    assert json.loads(run("federation status hospitals --json").out)["runs"]["spring"]["status"] == "failed"


def test_status_tells_of_an_expired_certificate(run, hospitals):
    certified = new_server(new_authority("x"), ["localhost"], days=-2)
    (hospitals / "private/server.crt").write_bytes(certified.certificate)
    assert "expired" in run("federation status hospitals").out
    assert json.loads(run("federation status hospitals --json").out)["certificate_days"] < -1


def test_renew_makes_another_certificate(run, hospitals):
    before = (hospitals / "private/server.crt").read_bytes()
    outcome = run("federation renew hospitals --days 30")
    assert outcome.code == 0, outcome.err
    assert "good for 30 days" in outcome.out
    assert (hospitals / "private/server.crt").read_bytes() != before


@pytest.mark.parametrize("days", ["0", "-3", "nan", "1e12", "x"])
def test_renew_refuses_days_that_make_no_sense(days, refused, hospitals):
    before = (hospitals / "private/server.crt").read_bytes()
    assert "--days" in refused(f"federation renew hospitals --days={days}")
    assert (hospitals / "private/server.crt").read_bytes() == before


@pytest.mark.parametrize("command", ["status", "renew", "serve", "run -k 3"])
def test_another_folder_is_no_federation(command, refused):
    Path("photos").mkdir()
    for folder in ("photos", "absent"):
        assert "is no folder of a federation" in refused(f"federation {command} {folder}")


# --- serve and run -------------------------------------------------------------------------------


def test_an_expired_server_does_not_start(refused, hospitals):
    certified = new_server(new_authority("x"), ["localhost"], days=-2)
    (hospitals / "private/server.crt").write_bytes(certified.certificate)
    assert "expired" in refused("federation serve hospitals")


def test_a_run_needs_a_server(refused, hospitals):
    said = refused("federation run hospitals -k 3 --name spring")
    assert "The server is not running. Start it with: fedkmeans federation serve" in said
    assert not (hospitals / "runs/spring").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--resume", "--resume needs the --name of the run"),
        ("--resume --name autumn", "there is no run 'autumn' to go on with; leave out --resume"),
        ("--name spring", "there is a run 'spring' already; go on with it (--resume) or choose"),
        ("--name ../x", "'../x' cannot be called so"),
        ("-a k-means", "needs all rows in one place"),
        ("-a magic", "--algorithm must be one of"),
        ("-a kfed --memory client", "--memory cannot be set for 'kfed'"),
        ("--max-rounds 0", "--max-rounds"),
        ("--init start.csv", "--init"),
        ("--min-answers 0", "min"),
        ("--timeout 0", "timeout"),
        ("--seed -1", "--seed"),
    ],
)
def test_a_run_that_makes_no_sense_is_refused_before_anything_starts(options, said, refused, hospitals):
    RunFolder(hospitals / "runs" / "spring").make()
    Path("start.csv").write_text("1,2\n3,4\n")
    assert said in refused(f"federation run hospitals -k 3 {options}")


# --- site join -----------------------------------------------------------------------------------


@pytest.fixture
def north(hospitals, clients):
    """The join file of north, as it was handed over; its rows are in north.csv."""
    Path("site").mkdir()
    return Path(shutil.copy(hospitals / "join/north.toml", "site/north.toml"))


CHECK = "site join site/north.toml --data north.csv --check"


def test_a_server_that_cannot_be_reached_is_told_in_one_line(run, north):
    edit(north, "localhost:9443", "localhost:9")
    outcome = run(CHECK)
    assert outcome.code == 2
    note, error = outcome.err.splitlines()
    assert note.startswith("Note: north: 30 rows of 2 columns are ready in")
    assert "this site cannot join yet (localhost:9: Connection refused)" in error
    assert stat.S_IMODE(Path("site/north").stat().st_mode) == 0o700
    assert stat.S_IMODE(Path("site/north/key").stat().st_mode) == 0o600


@pytest.fixture
def listening(tmp_path):
    """Somebody who speaks TLS at a port of this machine, with the key and certificate in a folder."""
    sockets = []

    def listen(folder, host="127.0.0.1"):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "private/server.crt", folder / "private/server.key")
        plain = socket.create_server((host, 0))
        sockets.append(plain)

        def serve():
            try:
                connection, _ = plain.accept()
                with context.wrap_socket(connection, server_side=True) as secure:
                    secure.recv(1024)
                    secure.sendall(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
            except OSError:
                pass

        threading.Thread(target=serve, daemon=True).start()
        return plain.getsockname()[1]

    yield listen
    for one in sockets:
        one.close()


def test_a_check_that_goes_well(run, north, hospitals, listening):
    edit(north, "localhost:9443", f"localhost:{listening(hospitals)}")
    outcome = run(CHECK)
    assert outcome.code == 0, outcome.err
    assert "All is well" in outcome.out


def test_another_server_is_not_trusted(run, north, listening):
    run(NEW.replace("hospitals", "impostors"))
    edit(north, "localhost:9443", f"localhost:{listening(Path('impostors'))}")
    outcome = run(CHECK)
    assert outcome.code == 2
    assert "is not the server of this federation" in outcome.err


def test_a_server_whose_certificate_has_expired_is_not_trusted(run, north, hospitals, listening):
    authority = (hospitals / "private/authority.key").read_bytes(), (hospitals / "authority.crt").read_bytes()
    old = new_server(Certified(*authority), ["localhost"], days=-1)
    (hospitals / "private/server.crt").write_bytes(old.certificate)
    (hospitals / "private/server.key").write_bytes(old.key)
    edit(north, "localhost:9443", f"localhost:{listening(hospitals)}")
    assert "has expired. Ask who runs the federation to renew it." in run(CHECK).err


def test_a_server_of_another_name_is_not_trusted(run, north, hospitals, listening):
    edit(north, "localhost:9443", f"127.0.0.2:{listening(hospitals, '127.0.0.2')}")
    assert "was made for another name. Ask for a new join file." in run(CHECK).err


@pytest.fixture
def agreed(run, clients):
    """A join file with columns that all sites must have."""
    assert run(f"{NEW} --columns age,weight").code == 0
    return Path(shutil.copy("hospitals/join/north.toml", "north.toml"))


def test_columns_that_are_missing_are_named(refused, agreed):
    write_client("bad.csv", 0, names=("age", "height"))
    said = refused("site join north.toml --data bad.csv --check")
    assert "'weight'" in said
    assert "bad.csv" in said


def test_columns_are_brought_into_the_order_that_was_agreed_on(run, agreed):
    write_client("other.csv", 0, names=("weight", "size", "age"))
    edit(agreed, "localhost:9443", "localhost:9")
    outcome = run("site join north.toml --data other.csv --check")
    assert "30 rows of 2 columns are ready" in outcome.err
    assert open_site(Path("north")).feature_names == ("age", "weight")


def test_columns_cannot_be_chosen_when_they_were_agreed_on(refused, agreed):
    assert "leave out --columns" in refused("site join north.toml --data north.csv --columns age --check")


def test_other_columns_than_numbers_are_refused_by_name(refused, agreed):
    write_client("bad.csv", 0, weight=["heavy"] * 30)
    said = refused("site join north.toml --data bad.csv --check")
    assert "'weight'" in said
    assert "bad.csv" in said


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("site join absent.toml --data north.csv", "join file 'absent.toml' cannot be read: No such file"),
        ("site join north.csv --data north.csv", "'north.csv' is no join file"),
        ("site join hospitals/federation.toml --data north.csv", "is no join file of format 1"),
        ("site join site/north.toml --data absent.csv", "'absent.csv'"),
        ("site join site/north.toml --data many", "--data must be one file"),
        ("site join site/north.toml --data north.csv --label x", "'x'"),
        ("site join site/north.toml --data north.csv --missing guess", "--missing"),
        ("site join site/north.toml --data north.csv --min-cluster-size 0", "--min-cluster-size must be"),
        ("site join site/north.toml --data north.csv --key absent", "'absent': No such file"),
        ("site join site/north.toml --data north.csv --key north.csv", "north.csv is no private key"),
        ("site join site/north.toml --data north.csv --key hospitals/keys/north.pub", "is no private key"),
    ],
)
def test_what_cannot_be_joined_is_refused(line, said, refused, north):
    Path("many").mkdir()
    write_client("many/a.csv", 0)
    write_client("many/b.csv", 1)
    assert said in refused(f"{line} --check")


def test_a_site_with_its_own_key_must_name_it(run, refused, clients):
    key = new_key()
    Path("north.pub").write_bytes(site_public(key.public_key()))
    assert run(f"{NEW} --public-key north=north.pub").code == 0
    edit(Path("hospitals/join/north.toml"), "localhost:9443", "localhost:9")
    said = refused("site join hospitals/join/north.toml --data north.csv --check")
    assert "has no private key, as the site made its own; name it with --key" in said
    Path("own").write_bytes(site_private(key))
    outcome = run("site join hospitals/join/north.toml --data north.csv --key own --check --folder mine")
    assert "30 rows of 2 columns are ready" in outcome.err
    assert Path("mine/key").read_bytes() == Path("own").read_bytes()
