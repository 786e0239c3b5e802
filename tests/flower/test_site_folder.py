"""What a site keeps on disk: rows that are mapped, and what it said, for the next process to know."""

import json
import logging
import os
import stat
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from fedkmeans import FederatedKMeans, InProcess, Site, SitePolicy
from fedkmeans.errors import DataError
from fedkmeans.flower.deploy.site_folder import keep, open_site, prepare
from fedkmeans.flower.transport import Flower, WaitPolicy
from fedkmeans.protocol.messages import LocalUpdate, Score, SendDelta
from tests.flower.grids import LocalGrid

RNG = np.random.default_rng(3)
X = RNG.normal(size=(80, 2)) + 6 * RNG.integers(2, size=(80, 2))
START = X[:3]
PATIENCE = WaitPolicy(timeout=1, poll=0.001, wait=0)
UPDATE = LocalUpdate(START, 1, 1e-8, "dynamic", "keep")


def site(name="north", rows=X, **about):
    return Site(name, rows, kernel="numpy", **about)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def folder(tmp_path):
    prepare(tmp_path / "site", site(feature_names=("age", "größe"), policy=SitePolicy(3)))
    return tmp_path / "site"


# --- rows ----------------------------------------------------------------------------------------


def is_mapped(array):
    while array is not None:
        if isinstance(array, np.memmap):
            return True
        array = getattr(array, "base", None)
    return False


def test_a_site_is_opened_as_it_was_prepared_and_its_rows_stay_on_disk(folder):
    found = open_site(folder)
    assert (found.name, found.feature_names, found.policy) == ("north", ("age", "größe"), SitePolicy(3))
    assert found.table.wanted_kernel == "numpy"
    np.testing.assert_array_equal(found.X, X)
    assert is_mapped(found.X)
    assert found.answer(Score(START)) == site().answer(Score(START))


KINDS = [X.astype("f4"), X.round().astype("i2"), X > 1, np.asfortranarray(X), X[::-1]]


@pytest.mark.parametrize("rows", KINDS)
def test_rows_of_any_kind_are_kept_exactly(rows, tmp_path):
    prepare(tmp_path / "site", site(rows=rows))
    found = open_site(tmp_path / "site")
    assert found.X.dtype == rows.dtype
    np.testing.assert_array_equal(found.X, rows)
    assert found.X.flags.c_contiguous
    assert found.fingerprint == site(rows=rows).fingerprint


def test_columns_need_no_names(tmp_path):
    prepare(tmp_path / "site", site())
    assert open_site(tmp_path / "site").feature_names is None


def test_only_its_owner_can_read_the_folder(tmp_path):
    before = os.umask(0)
    try:
        prepare(tmp_path / "a" / "b" / "site", site())
        (tmp_path / "old").mkdir()
        prepare(tmp_path / "old", site())
        opened = open_site(tmp_path / "old")
        opened.answer(SendDelta(UPDATE, "run", "sum", "e1", {"north": None}))
        keep(tmp_path / "old", opened)
    finally:
        os.umask(before)
    assert mode(tmp_path / "a" / "b" / "site") == 0o700
    files = sorted((tmp_path / "old").iterdir())
    assert [path.name for path in files] == ["deltas.bin", "rows.npy", "site.json"]
    assert {mode(path) for path in files} == {0o600}


@pytest.mark.parametrize(
    "other",
    [Site("north", scipy.sparse.csr_array(X)), Site("north", X, sample_weight=np.arange(1.0, 81))],
    ids=["sparse", "weighted"],
)
def test_sparse_or_weighted_rows_are_refused(other, tmp_path):
    with pytest.raises(DataError, match="'north': only tables without weights"):
        prepare(tmp_path / "site", other)
    assert not (tmp_path / "site").exists()


def test_new_rows_take_the_place_of_old_ones_and_what_was_said_is_forgotten(folder):
    opened = open_site(folder)
    opened.answer(SendDelta(UPDATE, "run", "sum", "e1", {"north": None}))
    keep(folder, opened)
    assert open_site(folder).delta_states
    prepare(folder, site(rows=X[:50]))
    assert len(open_site(folder).X) == 50
    assert not open_site(folder).delta_states


# --- damage --------------------------------------------------------------------------------------


def rewrite(**changes):
    def harm(folder):
        about = json.loads((folder / "site.json").read_text())
        (folder / "site.json").write_text(json.dumps({**about, **changes}))

    return harm


def save(array):
    return lambda folder: np.save(folder / "rows.npy", array, allow_pickle=True)


def write(name, data):
    return lambda folder: (folder / name).write_bytes(data)


DAMAGE = {
    "no rows": lambda folder: (folder / "rows.npy").unlink(),
    "no site.json": lambda folder: (folder / "site.json").unlink(),
    "no folder": lambda folder: folder.rename(folder.with_name("elsewhere")),
    "empty rows": write("rows.npy", b""),
    "rows that are text": write("rows.npy", b"age,bmi\n1,2\n"),
    "rows that are no archive": write("rows.npy", b"PK\x03\x04" + bytes(50)),
    "rows that end early": lambda folder: os.truncate(folder / "rows.npy", 200),
    "pickled rows": save(np.array([[1, "a"], [None, 2]], dtype=object)),
    "NaN": save(np.array([[1.0, np.nan]])),
    "texts": save(np.array([["a", "b"]])),
    "one column": save(X[:, 0]),
    "another number of columns": save(X[:, :1]),
    "an empty site.json": write("site.json", b""),
    "a site.json that is no text": write("site.json", b"\xff\xfe"),
    "a list": write("site.json", b"[]"),
    "no name": rewrite(name=""),
    "a name that is a number": rewrite(name=5),
    "names that are a number": rewrite(feature_names=5),
    "no policy": write("site.json", b'{"name": "north", "feature_names": null}'),
    "a policy that is none": rewrite(min_cluster_size=0),
    "no such kernel": rewrite(kernel="cuda"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_folder_is_refused_with_a_remedy(what, folder):
    DAMAGE[what](folder)
    with pytest.raises(DataError, match="Join again with: fedkmeans site join") as found:
        open_site(folder)
    assert repr(str(folder)) in str(found.value)


def test_an_archive_of_arrays_is_no_rows(folder):
    with (folder / "rows.npy").open("wb") as file:
        np.savez(file, X=X)
    with pytest.raises(DataError, match="Join again"):
        open_site(folder)


def test_nothing_pickled_is_ever_run(folder, tmp_path):
    class Harm:
        def __reduce__(self):
            return (open, (str(tmp_path / "harm"), "w"))

    np.save(folder / "rows.npy", np.array([[Harm()]], dtype=object), allow_pickle=True)
    with pytest.raises(DataError):
        open_site(folder)
    assert not (tmp_path / "harm").exists()


# --- what was said -------------------------------------------------------------------------------


def test_what_was_said_is_known_to_the_next_process(folder):
    first = open_site(folder)
    for total in ("sum", "other sum"):
        first.answer(SendDelta(UPDATE, "run", total, "e1", {"north": None}))
    keep(folder, first)
    code = (
        "import sys; from pathlib import Path; from fedkmeans.flower.deploy.site_folder import open_site; "
        "found = open_site(Path(sys.argv[1])); "
        "print([(run, total, said.pending_in, said.pending.n_samples, repr(said.pending.inertia)) "
        "for run, totals in found.delta_states.items() for total, said in totals.items()])"
    )
    command = [sys.executable, "-c", code, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    inertia = repr(float(first.delta_states["run"]["sum"].pending.inertia))
    assert done.stdout.strip() == str([("run", total, "e1", 80.0, inertia) for total in ("sum", "other sum")])


def test_a_site_that_said_nothing_writes_nothing(folder):
    keep(folder, open_site(folder))
    assert not (folder / "deltas.bin").exists()


def sites():
    return [site(name, rows) for name, rows in zip("abc", np.split(X, [20, 45]), strict=True)]


def outcome(federation, **settings):
    settings = {"max_rounds": 5, "tol": 0, "random_state": 2, "memory": "client", "init": START, **settings}
    model = FederatedKMeans(3, **settings).fit_federation(federation)
    return model.cluster_centers_, model.inertia_, model.history_


def flower(tmp_path, tamper=lambda node, message, reply: reply):
    for one in sites():
        prepare(tmp_path / one.name, one)
    nodes = {"a": 1, "b": 2, "c": 3}
    return Flower(LocalGrid({node: tmp_path / name for name, node in nodes.items()}, tamper), nodes, PATIENCE)


@pytest.mark.parametrize("settings", [{}, {"clients_per_round": 2}, {"n_init": 2, "init": "random"}])
def test_clients_that_keep_their_words_on_disk_find_the_very_model(settings, tmp_path):
    found, expected = outcome(flower(tmp_path), **settings), outcome(InProcess(sites()), **settings)
    np.testing.assert_array_equal(found[0], expected[0])
    assert found[1] == expected[1]
    pd.testing.assert_frame_equal(found[2], expected[2], check_exact=True)
    assert (tmp_path / "a" / "deltas.bin").exists()


HARM = {
    "truncated": lambda data: data[:-7],
    "cut to its beginning": lambda data: data[:5],
    "altered": lambda data: data[:60] + bytes([data[60] ^ 1]) + data[61:],
    "followed by something": lambda data: data + b"more",
    "noise": lambda data: bytes(range(256)),
}


@pytest.mark.parametrize("what", HARM)
def test_a_site_whose_memory_is_damaged_says_so_and_the_run_is_exact(what, tmp_path, caplog):
    expected = outcome(InProcess(sites()))
    queries = []

    def harm(node, message, reply):
        if node == 2:
            queries.append(message)
            if len(queries) == 4:
                path = tmp_path / "b" / "deltas.bin"
                path.write_bytes(HARM[what](path.read_bytes()))
        return reply

    found = outcome(flower(tmp_path, harm))
    told = [one for one in caplog.records if "is damaged" in one.getMessage()]
    assert {one.levelno for one in told} == {logging.WARNING}
    assert all(str(tmp_path / "b" / "deltas.bin") in one.getMessage() for one in told)
    assert len(told) == 2  # what is lost, and then all there is: after that it knows again
    # All are asked once more, and say all that they have: the totals are the same, to rounding.
    np.testing.assert_allclose(found[0], expected[0], rtol=0, atol=1e-12)
    assert found[1] == pytest.approx(expected[1], rel=1e-12)
    assert len(found[2]) == len(expected[2])


def test_memory_is_written_before_the_reply_leaves(tmp_path):
    seen = []

    def look(node, message, reply):
        seen.append((tmp_path / "abc"[node - 1] / "deltas.bin").exists())
        return reply

    federation = flower(tmp_path, look)
    federation.ask(SendDelta(UPDATE, "run", "sum", "e1", dict.fromkeys("abc")), federation.clients)
    assert seen == [True] * 3
