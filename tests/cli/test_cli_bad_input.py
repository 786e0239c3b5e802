"""Whatever is wrong: one line that names the client or file, the column and the remedy; nothing written."""

from pathlib import Path

import numpy as np
import pytest

from .conftest import write_client

FIT = "fit north.csv bad.csv -k 2"


@pytest.fixture
def good(here):
    write_client("north.csv", 0)


def expect(line: str, *parts: str) -> None:
    for part in parts:
        assert part in line, line


def test_missing_values(refused, good):
    write_client("bad.csv", 1, age=["", "NaN", *range(28)])
    expect(refused(FIT), "'bad'", "bad.csv", "'age' (2)", "--missing drop-rows")


def test_infinity(refused, good):
    write_client("bad.csv", 1, weight=["inf", *range(29)])
    expect(refused(FIT), "'bad'", "'weight' (1)", "infinite", "--drop")


def test_nan_in_an_array(refused, here):
    X = np.zeros((5, 2))
    X[3, 1] = np.nan
    np.save("bad.npy", X)
    expect(refused("fit bad.npy -k 2"), "'bad'", "'x1' (1)", "--missing drop-rows")


def test_a_client_without_rows(refused, good):
    Path("bad.csv").write_text("age,weight\n")
    expect(refused(FIT), "'bad'", "no rows", "leave this file out")


def test_an_empty_file(refused, good):
    Path("bad.csv").write_text("")
    expect(refused(FIT), "'bad'", "empty", "export it again")


@pytest.mark.parametrize("algorithm", ["dwf", "kfed", "fkm", "k-means"])
def test_more_clusters_than_rows(refused, good, algorithm):
    write_client("bad.csv", 1, n=3)
    line = refused(f"fit north.csv bad.csv -k 34 -a {algorithm}")
    expect(line, "33 rows", "-k 34", "fewer clusters")


def test_different_columns(refused, good):
    write_client("bad.csv", 1, names=("age", "mass"))
    expect(refused(FIT), "'north' and 'bad'", "'weight'", "'mass'", "--drop", "--columns")


def test_different_numbers_of_columns(refused, here):
    np.save("a.npy", np.zeros((5, 2)))
    np.save("b.npy", np.zeros((5, 3)))
    expect(refused("fit a.npy b.npy -k 2"), "'a' and 'b'", "2 and 3 columns", "same columns")


def test_text_columns(refused, good):
    write_client("bad.csv", 1, city=["Ulm", "Bonn"] * 15)
    expect(refused(FIT), "'bad'", "'city'", "--drop city")


def test_a_row_that_is_too_short(refused, good):
    Path("bad.csv").write_text("age,weight\n1,2\n3\n")
    expect(refused(FIT), "'bad'", "line 3", "1 value ", "correct that line")


def test_a_folder_that_is_called_like_a_file(refused, good):
    Path("bad.csv").mkdir()
    expect(refused(FIT), "bad.csv", "no data file")


def test_binary_rubbish(refused, good):
    Path("bad.csv").write_bytes(bytes(range(256)) * 4)
    expect(refused(FIT), "bad.csv", "binary")
    Path("bad.xyz").write_bytes(b"?")
    expect(refused("fit north.csv bad.xyz -k 2"), "bad.xyz", "unknown format", ".csv")


@pytest.mark.parametrize("suffix", ["parquet", "feather", "npy", "npz", "json"])
def test_truncated_files(refused, run, suffix):
    import pyarrow as pa
    import pyarrow.feather
    import pyarrow.parquet

    table = pa.table({"age": np.arange(500.0), "weight": np.arange(500.0)})
    writers = {
        "parquet": lambda p: pa.parquet.write_table(table, p),
        "feather": lambda p: pa.feather.write_feather(table, p),
        "npy": lambda p: np.save(p, np.zeros((500, 2))),
        "npz": lambda p: np.savez(p, X=np.zeros((500, 2))),
        "json": lambda p: Path(p).write_text(
            '{"users": ["a"], "user_data": {"a": {"x": [[1, 2]], "y": [0]}}}'
        ),
    }
    path = Path(f"bad.{suffix}")
    writers[suffix](str(path))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    expect(refused(f"fit bad.{suffix} -k 2"), f"bad.{suffix}")


def test_a_file_given_twice_and_a_copy(refused, good):
    expect(refused("fit north.csv ./north.csv -k 2"), "given twice", "once")
    Path("bad.csv").write_bytes(Path("north.csv").read_bytes())
    expect(refused(FIT), "north.csv", "bad.csv", "same content", "remove one")


def test_a_file_that_is_not_there(refused, good):
    expect(refused(FIT), "bad.csv", "does not exist", "check the path")


def test_a_pickle_is_not_opened(refused, here):
    np.save("bad.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    expect(refused("fit bad.npy -k 2"), "bad.npy")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("-k 0", "Error: -k must be a whole number of at least 1"),
        ("-k -3", "Error: -k must be a whole number of at least 1"),
        ("-k two", "-k"),
        ("-k 2 --max-local 0", "--max-local must be"),
        ("-k 2 --max-rounds 0", "--max-rounds must be"),
        ("-k 2 --min-rounds -1", "--min-rounds must be"),
        ("-k 2 --learning-rate 0", "--learning-rate must be"),
        ("-k 2 --learning-rate nan", "--learning-rate must be"),
        ("-k 2 --momentum 1", "Error: --momentum must be"),
        ("-k 2 --tol -1", "Error: --tol must be"),
        ("-k 2 --tol-local -1", "--tol-local must be"),
        ("-k 2 --patience 0", "Error: --patience must be"),
        ("-k 2 --patience soon", "Error: --patience must be"),
        ("-k 2 --n-init 0", "--n-init must be"),
        ("-k 2 --n-jobs 0", "--n-jobs must be"),
        ("-k 2 --score-every -1", "--score-every must be"),
        ("-k 2 --clients-per-round 0", "--clients-per-round must be"),
        ("-k 2 --clients-per-round 5", "--clients-per-round is 5"),
        ("-k 2 --seed -1", "Error: --seed must be"),
        ("-k 2 --init nonsense", "Error: --init must be"),
        ("-k 2 --empty-clusters nonsense", "--empty-clusters must be one of"),
        ("-k 2 --algorithm nonsense", "--algorithm must be one of dwf"),
        ("-k 2 --algorithm wf --weighting nonsense", "one of by_compactness, by_size, dynamic, equal; got"),
        ("-k 2 --algorithm wf --weighting last_counts", "got 'last_counts'"),
        (
            "-k 2 --algorithm dwf --weighting equal",
            "'dwf', it is 'dynamic'; use --algorithm wf",
        ),
        ("-k 2 --algorithm kfed --momentum 0.5 --tol 1", "--momentum, --tol cannot be set for 'kfed'"),
        ("-k 2 --algorithm kfed --tol 1", "It takes --n-init, --n-local-clusters"),
        ("-k 2 --algorithm k-means --max-rounds 3", "--max-rounds cannot be set for 'k-means'"),
        ("-k 2 --algorithm k-means --tol -1", "Error: --tol must be a number in [0, inf), got -1.0."),
        ("-k 2 --missing nonsense", "--missing: must be error or drop-rows, got 'nonsense'. See"),
        ("-k 2 --header perhaps", "--header: must be yes or no, got 'perhaps'"),
        ("-k 2 --init start.csv", "--init: file 'start.csv' does not exist; check the path"),
        ("-k 2 --init k/means", "--init: file 'k/means' does not exist"),
        ("-k 2 --label nonsense", "'nonsense'"),
        ("-k 2 --client-column nonsense", "'nonsense'"),
        ("-k 2 --columns nonsense", "'nonsense'"),
        ("-k 2 --drop agee", "did you mean 'age'"),
        ("-k 2 --drop age,weight", "no columns left"),
        ("-k 2 --n-clients 3", "--n-clients"),
        ("-k 2 --dataset digits", "either data files or a built-in data set"),
        ("-k 2 --nonsense", "--nonsense"),
        ("", "-k"),
    ],
)
def test_parameters_that_make_no_sense(refused, good, options, words):
    expect(refused(f"fit north.csv {options}"), words)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--dataset nonsense", "unknown data set 'nonsense'"),
        ("--dataset digits --distribution nonsense", "--distribution must be one of"),
        ("--dataset digits --n-clients 0", "--n-clients must"),
        ("--dataset digits --distribution dirichlet", "--distribution dirichlet needs --alpha"),
        ("--dataset digits --distribution dirichlet --alpha -1", "Error: --alpha must"),
        ("", "either data files or a built-in data set"),
    ],
)
def test_built_in_data_that_does_not_exist(refused, options, words):
    expect(refused(f"fit -k 2 {options}"), words)


def test_places_that_cannot_be_written(refused, good):
    Path("file").write_text("")
    expect(refused("fit north.csv -k 2 --out file/model"), "file/model", "existing folder")
    expect(refused("fit north.csv -k 2 --out absent/model"), "absent/model", "existing folder")
    Path("mine").mkdir()
    Path("mine/diary.txt").write_text("dear diary")
    expect(refused("fit north.csv -k 2 --out mine"), "diary.txt", "choose another place")
    expect(refused("fit north.csv -k 2 --out north.csv"), "north.csv")


def test_the_place_is_checked_before_the_data_is_read(refused, here):
    expect(refused("fit absent.csv -k 2 --out nowhere/model"), "nowhere/model")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--memory sometimes", "--memory must be server, client, or a number in (0, 1); got"),
        ("--memory 0", "--memory must be server, client, or a number in (0, 1); got '0'"),
        ("--memory 1", "--memory must be"),
        ("--memory nan", "--memory must be"),
        ("--participation often", "--participation must be one of random, turns; got 'often'"),
        ("--tol-score -1", "--tol-score must be a number in [0, 1), got -1"),
        ("--tol-score 1", "--tol-score must be"),
        ("--tol-score nan", "--tol-score must be"),
        ("--memory none", "--memory none belongs to another algorithm; use 'wf'."),
        ("--memory 0.9", "--memory 0.9 belongs to another algorithm; use 'forgetting'."),
        ("-a forgetting --memory client", "--memory 'client' belongs to another algorithm; use 'last-word'."),
        ("--weighting equal", "--weighting 'equal' does not go with memory: "),
        ("--weighting by_size -a forgetting", "Use 'dynamic', or --algorithm wf."),
        ("--empty-clusters relocate", "--empty-clusters 'relocate' does not go with memory: "),
        ("-a forgetting --empty-clusters relocate", "Use 'keep', or --algorithm wf."),
        (
            "-a dwf --memory server",
            "--memory cannot be set for 'dwf', which has no memory; use --algorithm last",
        ),
        ("-a wf --memory none", "--memory cannot be set for 'wf', which has no memory; leave it out"),
        ("-a dwf --memory 0.5", "which has no memory; use --algorithm forgetting"),
        (
            "-a ewf --tol-score 0.1",
            "--tol-score cannot be set for 'ewf', which has no memory; use --algorithm",
        ),
        ("-a fkm --memory server", "--memory cannot be set for 'fkm' (FKM). It takes"),
        ("-a kfed --participation turns", "--participation cannot be set for 'kfed'"),
        ("--patience soon", "--patience must be a whole number or none, got 'soon'"),
        ("--learning-rate 2", "--learning-rate must be a number in (0, 1], got 2"),
        ("-a fkm --max-local 0", "--max-local must be"),
        ("-a kfed --clients-per-round 0", "--clients-per-round must be"),
    ],
)
def test_options_are_checked_before_the_data_is_read(refused, options, words):
    expect(refused(f"fit absent.csv -k 2 {options}"), words)


def test_relocation_and_equal_weights_work_without_memory(run, good):
    for options in ("--empty-clusters relocate", "--weighting equal"):
        assert run(f"fit north.csv -k 2 --algorithm wf --force --max-rounds 5 {options}").code == 0


def test_centroids_to_start_from_that_do_not_fit(refused, good):
    np.save("start.npy", np.zeros((3, 2)))
    expect(
        refused("fit north.csv -k 2 --init start.npy"),
        "'start.npy' of --init must hold 2 centroids of 2 columns, and holds 3 of 2",
    )
    Path("start.csv").write_text("height,weight\n1,2\n3,4\n")
    expect(refused("fit north.csv -k 2 --init start.csv"), "start.csv", "height", "columns of the data")


def test_a_mistake_of_ours_keeps_its_traceback(run, good, monkeypatch):
    from fedkmeans.estimators import FederatedKMeans

    def broken(self, federation, on_round=None):
        raise ValueError("a mistake")

    monkeypatch.setattr(FederatedKMeans, "fit_federation", broken)
    with pytest.raises(ValueError, match="a mistake"):
        run("fit north.csv -k 2")


def test_a_full_disk_is_told(refused, good, monkeypatch):
    import errno

    from fedkmeans.model import Model

    def full(self, path):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(Model, "save", full)
    expect(refused("fit north.csv -k 2 --max-rounds 2 --quiet"), "No space left", "'model'")


def test_debug_raises_instead(run, good):
    from fedkmeans.errors import DataError

    with pytest.raises(DataError):
        run("--debug fit absent.csv -k 2")
