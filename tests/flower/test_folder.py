"""A federation's folder: every secret in the one place where it belongs, and certificates that hold."""

import os
import ssl
import stat
import tomllib
from contextlib import contextmanager
from dataclasses import replace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import example, given
from hypothesis import strategies as st

from fedkmeans._utils.atomic_io import atomic_path
from fedkmeans.errors import DataError, ParameterError
from fedkmeans.flower.deploy import certificates
from fedkmeans.flower.deploy import files as files_module
from fedkmeans.flower.deploy.certificates import (
    check_site_private,
    days_left,
    new_authority,
    new_key,
    new_server,
    private_pem,
    read_site_public,
    site_private,
    site_public,
)
from fedkmeans.flower.deploy.files import to_toml
from fedkmeans.flower.deploy.folder import FederationDetails, FederationFolder, new_federation, renew_server
from fedkmeans.flower.deploy.join_file import JoinFile

SITES = ("north", "south", "own-key")
HOSPITALS = FederationDetails(
    'Hôpitaux "d\'ici"', "fed.example.org", 9443, 9444, SITES, ("age", "bmi, kg/m²")
)
OWN_KEY = new_key()
# By ssh-keygen -t ecdsa -b 384, with the password "secret".
LOCKED_KEY = b"""-----BEGIN OPENSSH PRIVATE KEY-----
b3BlbnNzaC1rZXktdjEAAAAACmFlczI1Ni1jdHIAAAAGYmNyeXB0AAAAGAAAABDUVnEctb
LRWHnOucQ+msbGAAAAEAAAAAEAAACIAAAAE2VjZHNhLXNoYTItbmlzdHAzODQAAAAIbmlz
dHAzODQAAABhBHMfQCXV4kddLNx23geej2AHiUXCeW05U9052Oe79iq5eBwthG/8Vy2n0R
cZuTX8TBPOSpOFp4oSJzWAxnIPqSPrWZTUyH91KjGlt7oxA/F04QWLaLEl89dD0+lyMnLS
FwAAANDTJnij8zzO/F0SYJNcrl9HRQ0WPdBQh21ysc1upU3SDTUZTvQHg0bQ7l+/Jg5l3C
qcRjn5BLZqHXZ37hiTJtyo3LGmopHmfjeo1BV7pa+WN/OFzqoP/U0RSjQOA37GR2fFwV+F
MAzNMXTURS6jTJhP7ZYcUdXCuiT1btzk2OvG2k4NXCs8MF0gwMqdJSd9cHYCV2V3x9ZZkf
68xNSnJosuAKNdt1jqkANKd04uecm/4QCHOPaUQ9ErT8gN4u6Rxnt+iQIqxxCjMCwBYsV6
v1jc
-----END OPENSSH PRIVATE KEY-----
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    before = os.umask(0)  # nothing may depend on the user's
    try:
        path = tmp_path_factory.mktemp("federations") / "hospitals"
        return new_federation(path, HOSPITALS, {"own-key": site_public(OWN_KEY.public_key())})
    finally:
        os.umask(before)


def joined(folder, site):
    return JoinFile.read(folder / "join" / f"{site}.toml")


def files(folder):
    return [path for path in sorted(folder.path.rglob("*")) if path.is_file()]


# --- who has which secret ------------------------------------------------------------------------


def holders(folder, secret):
    """Files in which a secret stands; of a PEM, any line between its first and its last."""
    parts = secret.splitlines()[1:-1] if secret.startswith(b"-----") else [secret]
    return [
        str(path.relative_to(folder.path))
        for path in files(folder)
        if any(part in path.read_bytes() for part in parts)
    ]


def test_the_servers_secrets_are_nowhere_but_in_private(folder):
    for name in ("authority.key", "server.key", "executor.secret"):
        secret = (folder / "private" / name).read_bytes()
        assert len(secret) >= 32
        assert holders(folder, secret) == [f"private/{name}"]


def test_a_sites_private_key_is_in_its_own_join_file_only(folder):
    keys = {site: joined(folder, site).key for site in SITES}
    assert keys["own-key"] == ""
    assert keys["north"] != keys["south"]
    # All private keys of one curve begin alike: only what comes after the public half is secret.
    for site in ("north", "south"):
        secret = b"".join(keys[site].encode().splitlines()[4:-1])
        assert len(secret) > 50
        text = {path: path.read_bytes().replace(b"\n", b"") for path in files(folder)}
        assert [path.name for path, data in text.items() if secret in data] == [f"{site}.toml"]


def test_public_keys_are_those_of_the_private_ones(folder):
    for site in ("north", "south"):
        private = serialization.load_ssh_private_key(joined(folder, site).key.encode(), password=None)
        assert isinstance(private.curve, ec.SECP384R1)
        assert (folder / "keys" / f"{site}.pub").read_bytes() == site_public(private.public_key())
    assert (folder / "keys/own-key.pub").read_bytes() == site_public(OWN_KEY.public_key())


def test_certificates_belong_to_their_keys(folder):
    for certificate, key in (("authority.crt", "authority.key"), ("private/server.crt", "server.key")):
        found = x509.load_pem_x509_certificate((folder / certificate).read_bytes())
        private = serialization.load_pem_private_key((folder / "private" / key).read_bytes(), password=None)
        assert found.public_key() == private.public_key()


def test_only_its_owner_can_read_the_folder(folder):
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (folder.path, *folder.path.rglob("*"))}
    for path, mode in modes.items():
        assert mode == (0o700 if path.is_dir() else 0o600), path


def test_a_secret_is_not_shown_by_accident(folder):
    join = joined(folder, "north")
    assert join.key.splitlines()[3] not in repr(join)
    assert "PRIVATE" not in repr(certificates.Certified(b"PRIVATE", b""))


def test_a_secret_is_not_read_by_who_opened_its_file_early(tmp_path, monkeypatch):
    spies = []

    @contextmanager
    def watched(path):
        with atomic_path(path) as temporary:
            spies.append(temporary.open("rb"))
            yield temporary

    monkeypatch.setattr(files_module, "atomic_path", watched)
    files_module.write_private(tmp_path / "key", "secret")
    (spy,) = spies
    with spy:
        assert spy.read() == b""
    assert (tmp_path / "key").read_text() == "secret"


# --- what is in it -------------------------------------------------------------------------------


def test_the_folder_says_what_it_was_made_of(folder):
    assert folder.read() == HOSPITALS
    assert FederationFolder(folder.path).read() == HOSPITALS
    assert folder.nodes() == {}


def test_a_join_file_has_all_that_a_site_needs(folder):
    join = joined(folder, "north")
    assert (join.federation, join.site) == (HOSPITALS.name, "north")
    assert join.server == "fed.example.org:9443"
    assert join.columns == HOSPITALS.columns
    assert join.authority.encode() == (folder / "authority.crt").read_bytes()
    assert "site join" in (folder / "join/north.toml").read_text().splitlines()[1]


def test_nodes_are_kept_to_the_last_digit(folder, tmp_path):
    copy = FederationFolder(tmp_path)
    (tmp_path / "state").mkdir()
    copy.keep_nodes({"south": 2**64 - 1, "north": 3})
    assert copy.nodes() == {"north": 3, "south": 2**64 - 1}


def test_settings_may_be_edited(tmp_path):
    folder = new_federation(tmp_path / "f", HOSPITALS)
    text = (folder / "federation.toml").read_text()
    (folder / "federation.toml").write_text(text.replace("9444", "9500") + "# mine\n")
    assert folder.read() == replace(HOSPITALS, internal_port=9500)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("port = 9443", "", "lacks or has a wrong entry: 'port'"),
        ("port = 9443", 'port = "9443"', "port must be a whole number"),
        ("port = 9443", "port = 70000", "at most 65535"),
        ("port = 9443", "port = 9444", "both 9444; they must differ"),
        ("port = 9443", "port = ", "is not TOML"),
        ('"north", ', '"../north", ', "site '../north' cannot be called so"),
        ('sites = ["north", "south", "own-key"]', 'sites = "north"', "sites is no list"),
        ('sites = ["north", "south", "own-key"]', "sites = []", "at least one site"),
        ('host = "fed', 'host = "https://fed', "leave out https://"),
    ],
)
def test_settings_that_make_no_sense_are_refused(old, new, said, tmp_path):
    folder = FederationFolder(tmp_path)
    text = to_toml({"name": "x", "host": "fed", "port": 9443, "internal_port": 9444, "sites": SITES})
    assert old in text
    (tmp_path / "federation.toml").write_text(text.replace(old, new))
    with pytest.raises(ParameterError, match=said) as found:
        folder.read()
    assert "\n" not in str(found.value)


def test_settings_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "federation.toml").write_bytes(b"name = '\xff'")
    with pytest.raises(ParameterError, match="is not TOML"):
        FederationFolder(tmp_path).read()


def test_another_folder_is_none_of_a_federation(tmp_path):
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(ParameterError, match=r"is no folder of a federation.*federation new DIR"):
            FederationFolder(path).read()
        with pytest.raises(ParameterError, match="is no folder of a federation"):
            renew_server(FederationFolder(path))


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "a\\b", "-a", "_a", ".a", "a b", "ä", "a\n", "a" * 64, "a:b", "a\x00"]
)
def test_a_site_must_be_called_as_a_file_can_be(name):
    with pytest.raises(ParameterError, match="cannot be called so"):
        replace(HOSPITALS, sites=(name,))


@pytest.mark.parametrize("name", ["a", "0", "A.b-c_d", "a" * 63])
def test_other_names_are_fine(name):
    assert replace(HOSPITALS, sites=(name,)).sites == (name,)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sites": ()}, "at least one site; name them with --site"),
        ({"sites": ("a", "a")}, "two sites have the same name"),
        ({"columns": ("age", "age")}, "two columns have the same name"),
        ({"port": 9444}, "must differ"),
        ({"port": 0}, "port must be"),
        ({"internal_port": 65_536}, "at most 65535"),
        ({"host": ""}, "is no name or address"),
        ({"host": "https://fed.example.org"}, "leave out https://"),
        ({"host": "fed.example.org:9443"}, "leave out https:// and the port"),
        ({"host": "fed example"}, "is no name or address"),
        ({"host": "münchen.de"}, "xn--"),
        ({"host": "a" * 300}, "is no name or address"),
    ],
)
def test_a_federation_that_makes_no_sense_is_refused(change, said):
    with pytest.raises(ParameterError, match=said):
        replace(HOSPITALS, **change)


@pytest.mark.parametrize("host", ["localhost", "10.0.0.7", "::1", "fe80::1", "a", "x" * 70 + ".example.org"])
def test_any_host_will_do(host, tmp_path):
    folder = new_federation(tmp_path / "f", replace(HOSPITALS, host=host, sites=("a",)))
    assert joined(folder, "a").server == f"{host}:9443"


def test_an_existing_folder_is_left_alone(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("dear diary")
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "mine", tmp_path / "file"):
        with pytest.raises(ParameterError, match="exists already; choose a new folder"):
            new_federation(path, HOSPITALS)
    assert (tmp_path / "mine" / "notes.txt").read_text() == "dear diary"
    (tmp_path / "empty").mkdir()
    assert new_federation(tmp_path / "empty", HOSPITALS).read() == HOSPITALS
    with pytest.raises(DataError, match="choose a place in an existing folder"):
        new_federation(tmp_path / "no" / "such", HOSPITALS)


def test_nothing_is_left_of_a_folder_that_could_not_be_made(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(certificates, "new_server", fail)
    with pytest.raises(OSError, match="No space"):
        new_federation(tmp_path / "f", HOSPITALS)
    assert list(tmp_path.iterdir()) == []


def test_a_key_of_an_unknown_site_is_refused(tmp_path):
    with pytest.raises(ParameterError, match="a key is given for 'west', which is no site"):
        new_federation(tmp_path / "f", HOSPITALS, {"west": b""})


def openssh(key):
    return key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)


def test_public_keys_are_read_as_ssh_keygen_writes_them():
    plain = site_public(OWN_KEY.public_key())
    assert read_site_public(plain.strip() + b" alice@north\n", "x.pub") == plain


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"ecdsa-sha2-nistp384 AAAA",
        private_pem(OWN_KEY),
        site_private(OWN_KEY),
        openssh(ec.generate_private_key(ec.SECP256R1())),
        openssh(rsa.generate_private_key(65537, 2048)),
    ],
    ids=["nothing", "no text", "cut off", "private", "private, of ssh", "another curve", "rsa"],
)
def test_other_keys_are_refused(data):
    with pytest.raises(ParameterError, match=r"^x\.pub (holds|is) no .*key"):
        read_site_public(data, "x.pub")


def test_a_private_key_must_be_one_that_the_supernode_reads():
    check_site_private(site_private(OWN_KEY), "key")
    other = site_private(ec.generate_private_key(ec.SECP256R1()))
    for data, said in (
        (LOCKED_KEY, "locked by a password.*ssh-keygen -p"),
        (other, "no key on the curve P-384"),
        (private_pem(OWN_KEY), "no private key in OpenSSH's format"),
        (site_public(OWN_KEY.public_key()), "no private key in OpenSSH's format"),
        (b"", "no private key"),
        (site_private(OWN_KEY)[:200], "no private key"),
    ):
        with pytest.raises(ParameterError, match=said):
            check_site_private(data, "key")


# --- certificates --------------------------------------------------------------------------------


def shake_hands(tmp_path, server, authority, host):
    """A handshake in TLS between a site and the server, in memory; raises as it would on a wire."""
    for name, data in (("crt", server.certificate), ("key", server.key), ("ca", authority)):
        (tmp_path / name).write_bytes(data)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(tmp_path / "crt", tmp_path / "key")
    asking = ssl.create_default_context(cafile=str(tmp_path / "ca"))
    to_server, to_site = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        asking.wrap_bio(to_site, to_server, server_hostname=host),
        serving.wrap_bio(to_server, to_site, server_side=True),
    ]
    for _ in range(4):
        for end in list(ends):
            try:
                end.do_handshake()
                ends.remove(end)
            except ssl.SSLWantReadError:
                continue
    assert not ends


def certified(folder):
    key, certificate = (folder / "private" / f"server.{kind}" for kind in ("key", "crt"))
    return certificates.Certified(key.read_bytes(), certificate.read_bytes())


@pytest.mark.parametrize("host", ["fed.example.org", "localhost", "127.0.0.1"])
def test_a_site_trusts_the_server_under_its_names(folder, host, tmp_path):
    shake_hands(tmp_path, certified(folder), joined(folder, "north").authority.encode(), host)


@pytest.mark.parametrize("host", ["10.0.0.7", "::1"])
def test_a_host_may_be_an_address(host, tmp_path):
    authority = new_authority("x")
    shake_hands(tmp_path, new_server(authority, [host]), authority.certificate, host)


def test_a_site_trusts_no_other_name_and_no_other_authority(folder, tmp_path):
    authority = (folder / "authority.crt").read_bytes()
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(tmp_path, certified(folder), authority, "evil.example.org")
    other = new_authority(HOSPITALS.name)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(tmp_path, new_server(other, ["fed.example.org"]), authority, "fed.example.org")


def test_a_server_cannot_make_certificates(folder, tmp_path):
    """Who steals the server's key can be the server, but cannot make others."""
    forged = new_server(certified(folder), ["fed.example.org"])
    chain = certificates.Certified(forged.key, forged.certificate + certified(folder).certificate)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(tmp_path, chain, (folder / "authority.crt").read_bytes(), "fed.example.org")


def test_certificates_last_as_long_as_they_say(folder):
    assert days_left((folder / "private/server.crt").read_bytes()) == pytest.approx(365, abs=0.1)
    assert days_left((folder / "authority.crt").read_bytes()) == pytest.approx(3650, abs=0.1)
    assert days_left(new_server(new_authority("x"), ["h"], 2.5).certificate) == pytest.approx(2.5, abs=0.01)


def test_an_expired_certificate_is_expired(tmp_path):
    authority = new_authority("x")
    server = new_server(authority, ["localhost"], days=-1)
    assert days_left(server.certificate) == pytest.approx(-1, abs=0.01)
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        shake_hands(tmp_path, server, authority.certificate, "localhost")


def test_a_renewed_certificate_is_another_one_that_sites_trust(tmp_path):
    folder = new_federation(tmp_path / "f", HOSPITALS)
    before, authority = certified(folder), (folder / "authority.crt").read_bytes()
    renew_server(folder, 30)
    after = certified(folder)
    assert after.key != before.key
    assert after.certificate != before.certificate
    assert days_left(after.certificate) == pytest.approx(30, abs=0.1)
    shake_hands(tmp_path, after, authority, "fed.example.org")
    assert (folder / "authority.crt").read_bytes() == authority
    assert {stat.S_IMODE(path.stat().st_mode) for path in (folder / "private").iterdir()} == {0o600}


# --- join files ----------------------------------------------------------------------------------

JOIN = JoinFile('a "federation"', "north", "fed:9443", ("age",), new_authority("x").certificate.decode(), "")


def written(tmp_path, join):
    path = tmp_path / "join.toml"
    path.write_text(join.write(), encoding="utf-8")
    return path


@given(st.text(min_size=1), st.lists(st.text(), max_size=4))
@example("it's\n''' \"\"\" \\ \x7f \r\n \U0001f600", ["\n", "'\n'"])
def test_a_join_file_says_what_was_written(tmp_path_factory, name, columns):
    join = replace(JOIN, federation=name, columns=tuple(columns), key=site_private(OWN_KEY).decode())
    path = tmp_path_factory.getbasetemp() / "join.toml"
    path.write_text(join.write(), encoding="utf-8", newline="")
    assert JoinFile.read(path) == join


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("format = 1", "format = 2", "no join file of format 1; ask for one made with your version"),
        ("format = 1\n", "", "no join file of format 1"),
        ('site = "north"\n', "", "has no site; ask for the join file again"),
        ('site = "north"', 'site = ""', "has no site"),
        ('site = "north"', "site = 5", "has no site"),
        ('server = "fed:9443"\n', "", "has no server"),
        ('server = "fed:9443"', 'server = "fed"', "server must be HOST:PORT"),
        ('server = "fed:9443"', 'server = ":9443"', "server must be HOST:PORT"),
        ('server = "fed:9443"', 'server = "fed:https"', "server must be HOST:PORT"),
        ('columns = ["age"]', "columns = 5", "has no list of columns"),
        ('columns = ["age"]', "columns = [5]", "has no list of columns"),
        ('key = ""\n', "", "has no key"),
        ('key = ""', 'key = "ssh"', "key of .* is no private key"),
        ("BEGIN CERTIFICATE", "BEGIN SOMETHING", "authority of .* is no certificate"),
        ("format = 1", "format = ", "is no join file: .*; ask for it again"),
    ],
)
def test_a_join_file_that_was_altered_is_refused(old, new, said, tmp_path):
    path = written(tmp_path, JOIN)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(ParameterError, match=said) as found:
        JoinFile.read(path)
    assert "\n" not in str(found.value)
    assert "join.toml" in str(found.value)


@pytest.mark.parametrize("data", [b"", b"\xff\xfe", b"age,bmi\n1,2\n", b'{"format": 1}'])
def test_another_file_is_no_join_file(data, tmp_path):
    (tmp_path / "x.toml").write_bytes(data)
    with pytest.raises(ParameterError, match=r"x\.toml' is no join file"):
        JoinFile.read(tmp_path / "x.toml")


def test_a_join_file_that_is_not_there_is_refused(tmp_path):
    for path in (tmp_path / "absent.toml", tmp_path):
        with pytest.raises(ParameterError, match=r"cannot be read: .*; check the path"):
            JoinFile.read(path)


def test_a_join_file_survives_windows(tmp_path):
    join = replace(JOIN, key=site_private(OWN_KEY).decode())
    path = written(tmp_path, join)
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert JoinFile.read(path) == join


# --- TOML ----------------------------------------------------------------------------------------

texts = st.text(st.characters(codec="utf-8"))
plain = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | texts
keys = st.from_regex(r"[a-z][a-z0-9_-]*", fullmatch=True)


@given(st.dictionaries(keys, plain | st.lists(texts), max_size=5))
@example({"a": "\U0001f600"})
@example({"a": "line\nline\x00"})
@example({"a": "\x7f"})
@example({"a": "\r\n"})
@example({"a": "'''\n"})
@example({"a": "-----BEGIN-----\nabc==\n-----END-----\n"})
@example({"a": 1e-8, "b": float("inf"), "c": -0.0})
def test_toml_is_read_as_it_was_written(table):
    found = tomllib.loads(to_toml(table))
    assert repr(found) == repr(table)


def test_a_certificate_stays_readable():
    pem = new_authority("x").certificate.decode()
    assert pem in to_toml({"authority": pem})


def test_toml_of_anything_else_is_refused():
    with pytest.raises(TypeError, match="dict cannot be written"):
        to_toml({"a": {}})
