import subprocess
import sys

import numpy as np
import pyarrow.feather as pa_feather
import pyarrow.parquet as pq
import pytest

from fedkmeans.data import read_table, write_labels
from fedkmeans.errors import DataError

pytestmark = pytest.mark.slow

CSV = 'a,note\n1.0,"x, y"\n?,é\n03,z\n'


def test_text_is_copied_unchanged(write, tmp_path):
    path = write("in.csv", CSV)
    kept = read_table(path, drop=["note"], missing="drop_rows").kept
    write_labels(path, np.array([5, 7]), tmp_path / "out.csv", kept=kept)
    assert (tmp_path / "out.csv").read_text() == 'a,note,cluster\n1.0,"x, y",5\n?,é,\n03,z,7\n'


def test_text_without_header_and_with_blanks(write, tmp_path):
    path = write("in.txt", "\n  2   1\n  3   4\n")
    write_labels(path, np.array([0, 1]), tmp_path / "out.tsv", column="k")
    assert (tmp_path / "out.tsv").read_text() == "x0\tx1\tk\n2\t1\t0\n3\t4\t1\n"


@pytest.mark.parametrize(
    ("suffix", "read"), [(".parquet", pq.read_table), (".feather", pa_feather.read_table)]
)
def test_columnar_formats_keep_types_and_have_nulls(write, tmp_path, suffix, read):
    path = write("in.csv", CSV.replace("03", "3"))
    write_labels(path, np.array([5, 7]), tmp_path / f"out{suffix}", kept=np.array([True, False, True]))
    table = read(str(tmp_path / f"out{suffix}")).to_pydict()
    assert table == {"a": [1.0, None, 3.0], "note": ["x, y", "é", "z"], "cluster": [5, None, 7]}


@pytest.mark.parametrize(
    ("suffix", "read"), [(".parquet", pq.read_table), (".feather", pa_feather.read_table)]
)
def test_text_that_is_not_the_usual_form_of_a_number_stays_text(write, tmp_path, suffix, read):
    texts = {
        "zip": ["001", "?", "20"],
        "signed": ["+1", "2", "3"],
        "padded": ["01.5", "2", "3"],
        "long": ["12345678901234567890", "1", "2"],
        "when": ["2020-01-01T10:00", "", "2020-01-01T11:00"],
    }
    numbers = {"n": [1, -2, 30], "f": [1.50, 0.5, 1e-3], "spaced": [1, 2, 3], "b": [True, False, True]}
    written = {"n": ["1", "-2", "30"], "f": ["1.50", "0.5", "1e-3"], "spaced": [" 1", " 2", " 3"]}
    columns = texts | written | {"b": ["true", "False", "True"]}
    rows = [",".join(columns), *(",".join(row) for row in zip(*columns.values(), strict=True))]
    path = write("in.csv", "\n".join(rows))
    write_labels(path, np.arange(3), tmp_path / f"out{suffix}")
    found = read(str(tmp_path / f"out{suffix}")).to_pydict()
    expected = {name: [None if v in ("", "?") else v for v in values] for name, values in texts.items()}
    assert found == expected | numbers | {"cluster": [0, 1, 2]}


def test_empty_lines_and_labels_line_up(write, tmp_path):
    path = write("in.csv", "\n \na,b\n\n1,2\n\n\n3,4\n\n")
    assert read_table(path).X.tolist() == [[1, 2], [3, 4]]
    write_labels(path, np.array([7, 8]), tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == "a,b,cluster\n1,2,7\n3,4,8\n"


def test_an_empty_line_is_a_missing_value_where_there_is_one_column(write, tmp_path):
    path = write("in.csv", "\na\n1\n\n3\n")
    with pytest.raises(DataError, match=r"missing values in 'a' \(1\) of 3 rows"):
        read_table(path)
    table = read_table(path, missing="drop_rows")
    assert (table.X.tolist(), table.kept.tolist()) == ([[1], [3]], [True, False, True])
    write_labels(path, np.array([7, 8]), tmp_path / "out.csv", kept=table.kept)
    assert (tmp_path / "out.csv").read_text() == "a,cluster\n1,7\n,\n3,8\n"
    write_labels(path, np.array([7, 8]), tmp_path / "out.parquet", kept=table.kept)
    assert pq.read_table(tmp_path / "out.parquet").to_pydict() == {"a": [1, None, 3], "cluster": [7, None, 8]}


def test_a_trailing_delimiter_and_quoted_line_breaks_are_copied(write, tmp_path):
    path = write("in.csv", '"a\nx",note,\n1,"u\nv",\n2,w,\n')
    write_labels(path, np.array([7, 8]), tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == 'a x,note,cluster\n1,"u\nv",7\n2,w,8\n'
    write_labels(path, np.array([7, 8]), tmp_path / "out.parquet")
    assert pq.read_table(tmp_path / "out.parquet").column_names == ["a x", "note", "cluster"]


@pytest.mark.parametrize(("header", "expected"), [(True, "0,1,cluster\n5,6,9\n"), (False, None)])
def test_labels_for_a_file_whose_first_line_may_be_names(write, tmp_path, header, expected):
    path = write("in.csv", "0,1\n5,6\n")
    with pytest.raises(DataError, match="header=True or header=False"):
        write_labels(path, np.array([9]), tmp_path / "out.csv")
    write_labels(path, np.full(2 - header, 9), tmp_path / "out.csv", header=header)
    assert (tmp_path / "out.csv").read_text() == (expected or "x0,x1,cluster\n0,1,9\n5,6,9\n")


def test_npy_has_only_the_labels(write, tmp_path):
    write_labels(
        write("in.csv", CSV), np.array([5, 7]), tmp_path / "out.npy", kept=np.array([True, False, True])
    )
    assert np.load(tmp_path / "out.npy").tolist() == [5, -1, 7]


def test_arrays_become_tables(tmp_path):
    np.savez(tmp_path / "in.npz", X=np.eye(2), y=np.array([3, 4]))
    write_labels(tmp_path / "in.npz", np.array([0, 1]), tmp_path / "out.csv")
    assert read_table(tmp_path / "out.csv").feature_names == ("x0", "x1", "y", "cluster")


@pytest.mark.parametrize(
    ("labels", "kept"),
    [(np.zeros(2), None), (np.zeros(4), None), (np.zeros(3), [True, False, True]), (np.zeros(3), [True] * 4)],
)
def test_numbers_of_rows_must_match(write, tmp_path, labels, kept):
    with pytest.raises(DataError, match=r"in\.csv' has 3 rows.*one label for each kept row"):
        write_labels(write("in.csv", CSV), labels, tmp_path / "out.csv", kept=kept)
    assert not (tmp_path / "out.csv").exists()


def test_an_existing_column_is_not_overwritten(write, tmp_path):
    path = write("in.csv", "a,cluster\n1,2\n")
    with pytest.raises(
        DataError,
        match=r"in\.csv' already has a column 'cluster'; choose another .*column=\.\.\.",
    ):
        write_labels(path, np.array([0]), tmp_path / "out.csv")
    np.savez(tmp_path / "in.npz", X=np.eye(2), y=np.array([3, 4]))
    with pytest.raises(DataError, match="already has a column 'y'"):
        write_labels(tmp_path / "in.npz", np.array([0, 1]), tmp_path / "out.csv", column="y")


def test_the_input_is_not_overwritten(write):
    path = write("in.csv", CSV)
    with pytest.raises(DataError, match=r"in\.csv' is the input; choose another"):
        write_labels(path, np.zeros(3), path)
    assert path.read_text() == CSV


def test_places_and_formats_that_do_not_work(write, tmp_path):
    path = write("in.csv", CSV)
    with pytest.raises(DataError, match=r"out\.xlsx'.*'\.csv', '\.tsv', '\.parquet'.*choose one"):
        write_labels(path, np.zeros(3), tmp_path / "out.xlsx")
    with pytest.raises(DataError, match=r"cannot write .*out\.csv'.*existing folder"):
        write_labels(path, np.zeros(3), tmp_path / "absent" / "out.csv")


def test_a_failure_leaves_nothing_behind(write, tmp_path):
    path = write("in.csv", b"a,b\n1,\xe9\n")  # not UTF-8, which is found only when the row is copied
    with pytest.raises(DataError, match=r"in\.csv' cannot be copied row by row.*save it as UTF-8"):
        write_labels(path, np.array([0]), tmp_path / "out.csv")
    assert [file.name for file in tmp_path.iterdir()] == ["in.csv"]


@pytest.mark.parametrize("name", ["out.csv", "out.parquet", "out.feather", "out.npy"])
def test_a_write_that_fails_half_way_names_the_file_and_the_cause(write, tmp_path, name):
    path = write("in.csv", "a,b\n" + "".join(f"{i},{i % 7}.5\n" for i in range(20_000)))
    script = (
        "import resource, signal, sys, numpy as np\n"
        "from fedkmeans.data import write_labels\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))\n"
        "write_labels(sys.argv[1], np.arange(20_000), sys.argv[2])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, path, tmp_path / name], capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines()[-1] == (
        f"fedkmeans.errors.DataError: file {str(tmp_path / name)!r} cannot be written: File too large; "
        "choose another place or format"
    )
    assert [file.name for file in tmp_path.iterdir()] == ["in.csv"]


def test_a_full_disk_is_a_data_error(write, tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "Error writing bytes to file. Detail: [errno 28] No space left on device")

    monkeypatch.setattr(pq, "write_table", full)
    path = write("in.csv", CSV)
    with pytest.raises(
        DataError, match=r"out\.parquet' cannot be written: No space left on device; .*another place"
    ):
        write_labels(path, np.zeros(3), tmp_path / "out.parquet")
    assert [file.name for file in tmp_path.iterdir()] == ["in.csv"]
