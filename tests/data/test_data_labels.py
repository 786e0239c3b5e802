import numpy as np
import pyarrow.feather as pa_feather
import pyarrow.parquet as pq
import pytest

from fedkmeans.data import read_table, write_labels
from fedkmeans.errors import DataError

CSV = 'a,note\n1.0,"x, y"\n?,é\n03,z\n'


def test_text_is_copied_as_it_stands(write, tmp_path):
    path = write("in.csv", CSV)
    kept = read_table(path, drop=["note"], missing="drop_rows").kept
    write_labels(path, np.array([5, 7]), tmp_path / "out.csv", kept=kept)
    assert (tmp_path / "out.csv").read_text() == 'a,note,cluster\n1.0,"x, y",5\n?,é,\n03,z,7\n'


def test_text_without_header_and_with_blanks(write, tmp_path):
    path = write("in.txt", "\n  1   2\n  3   4\n")
    write_labels(path, np.array([0, 1]), tmp_path / "out.tsv", column="k")
    assert (tmp_path / "out.tsv").read_text() == "x0\tx1\tk\n1\t2\t0\n3\t4\t1\n"


@pytest.mark.parametrize(
    ("suffix", "read"), [(".parquet", pq.read_table), (".feather", pa_feather.read_table)]
)
def test_columnar_formats_keep_types_and_have_nulls(write, tmp_path, suffix, read):
    path = write("in.csv", CSV)
    write_labels(path, np.array([5, 7]), tmp_path / f"out{suffix}", kept=np.array([True, False, True]))
    table = read(str(tmp_path / f"out{suffix}")).to_pydict()
    assert table == {"a": [1.0, None, 3.0], "note": ["x, y", "é", "z"], "cluster": [5, None, 7]}


def test_npy_holds_the_labels_alone(write, tmp_path):
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
    with pytest.raises(DataError, match=r"in\.csv' already has a column 'cluster'; choose another name"):
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
    path = write("in.csv", b"a,b\n1,\xe9\n")  # not UTF-8, which shows only when the row is copied
    with pytest.raises(DataError, match=r"in\.csv' cannot be copied row by row.*save it as UTF-8"):
        write_labels(path, np.array([0]), tmp_path / "out.csv")
    assert [file.name for file in tmp_path.iterdir()] == ["in.csv"]


def test_a_full_disk_is_a_data_error(write, tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq, "write_table", full)
    path = write("in.csv", CSV)
    with pytest.raises(DataError, match=r"out\.parquet' cannot be written: .*No space left.*another place"):
        write_labels(path, np.zeros(3), tmp_path / "out.parquet")
    assert [file.name for file in tmp_path.iterdir()] == ["in.csv"]
