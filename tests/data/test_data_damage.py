"""Files that are damaged, have the wrong format, or contain no table."""

import gc
import os
import traceback
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.feather as pa_feather
import pyarrow.parquet as pq
import pytest

from fedkmeans.data import read_table
from fedkmeans.errors import DataError


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "", "is empty"),
        ("a.csv", "\n \n", "is empty"),
        ("a.csv", "a,b\n", "has no rows"),
        ("a.csv", "a,b,a\n1,2,3\n", "more than one column called 'a'; rename"),
        ("a.csv", "a,b\n1,2\n3\n", "line 3 has 1 value where 2 columns are expected; correct that line"),
        ("a.csv", "2,1\n3,4,5\n", "line 2 has 3 values where 2 columns are expected"),
        ("a.csv", "a\n3,4\n", "line 2 has 2 values where 1 column is expected"),
        ("a.csv", b"a,b\n1,2\n3,\xff,4\n", "line 3 has 3 values where 2 columns are expected"),
        ("a.txt", "2 1\n3   4\n5 6 7\n", "line 3 has 3 values where 2 columns are expected"),
        ("a.csv", "\n\na,b\n\n1,2\n\n\n3\n", "line 8 has 1 value where 2 columns are expected"),
        ("a.csv", 'a,b\n"1\n\n",2\n"3\n4"\n', "line 5 has 1 value where 2 columns are expected"),
        ("a.csv", "a,b,\n1,2\n", "line 2 has 2 values where 3 columns are expected"),
        (
            "a.csv",
            "a,b\n1,2\n".encode("utf-16"),
            "is UTF-16 text, not UTF-8; save it as 'CSV UTF-8', or .*iconv",
        ),
        ("a.txt", b"\xfe\xff" + "a,b\n1,2\n".encode("utf-16-be"), "is UTF-16 text"),
        ("a.csv", '"a,b\n1,2\n', "a quotation mark in line 1 is never closed; close or remove it"),
        ("a.csv", "a" * 200_000 + ",b\n1,2\n", "damaged or not of the format.*field larger"),
        ("a.csv", b"PK\x03\x04\x00\x00,1\n", "is binary, not text"),
        ("a.csv", "größe,b\n1,2\n".encode("latin-1"), "is not UTF-8 text; save it as UTF-8"),
        ("a.xlsx", "x", r"unknown format; save it as one of '\.csv', .*'\.json'"),
        ("a.parquet", "a,b\n1,2\n", "damaged or not of the format its suffix says.*export it again"),
        ("a.feather", "a,b\n1,2\n", "damaged or not of the format"),
        ("a.arrow", "", "damaged or not of the format"),
        ("a.npy", "a,b\n1,2\n", "damaged or not of the format"),
        ("a.npz", "a,b\n1,2\n", "damaged or not of the format"),
        ("a.json", "{", "is not JSON"),
    ],
)
def test_files_that_cannot_be_used(write, name, content, message):
    path = write(name, content)
    with pytest.raises(DataError, match=r"a\.\w+'.*" + message) as caught:
        read_table(path)
    assert "\n" not in str(caught.value)


def test_a_damaged_npy_header(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, np.eye(3))
    path.write_bytes(path.read_bytes().replace(b"(3, 3)", b"(3, 3 "))
    with pytest.raises(DataError, match=r"a\.npy' cannot be read, it is damaged"):
        read_table(path)


def test_an_error_does_not_show_the_row_it_is_about(write):
    secret = "".join(reversed("tneitaP"))  # reversed, so that the traceback does not contain it
    path = write("a.csv", f"name,b\n{secret}\n")
    with pytest.raises(DataError, match="line 2 has 1 value ") as caught:
        read_table(path)
    assert secret not in "".join(traceback.format_exception(caught.value))


def test_absent_files(tmp_path):
    with pytest.raises(DataError, match=r"no\.csv' does not exist; check the path"):
        read_table(tmp_path / "no.csv")


@pytest.mark.parametrize("name", ["t.parquet", "t.feather", "t.npy", "t.npz", "t.json"])
@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_truncated_files(tmp_path, name, share):
    path = tmp_path / name
    X = np.random.default_rng(0).normal(size=(200, 3))
    columns = pa.table({f"c{i}": X[:, i] for i in range(3)})
    leaf = '{"users": ["a"], "num_samples": [1], "user_data": {"a": {"x": [[1, 2, 3]], "y": [1]}}}'
    {
        "t.parquet": lambda: pq.write_table(columns, path),
        "t.feather": lambda: pa_feather.write_feather(columns, str(path)),
        "t.npy": lambda: np.save(path, X),
        "t.npz": lambda: np.savez_compressed(path, X=X),
        "t.json": lambda: path.write_text(leaf),
    }[name]()
    assert read_table(path).X.shape[1] == 3
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(DataError, match=rf"{name}'.*(damaged|truncated)"):
        read_table(path)


class Bomb:
    """An object whose unpickling has a visible effect."""

    def __reduce__(self):
        return (pytest.fail, ("a pickle was opened",))


@pytest.mark.parametrize("name", ["o.npy", "o.npz"])
def test_pickles_are_never_opened(tmp_path, name):
    objects = np.array([[Bomb()]], dtype=object)
    save = np.save if name == "o.npy" else lambda path, X: np.savez(path, X=X)
    save(tmp_path / name, objects)
    with pytest.raises(
        DataError, match=rf"{name}'.* holds Python objects, not numbers; save it with a numeric dtype$"
    ):
        read_table(tmp_path / name)


def test_objects_as_labels_are_named(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.eye(2), y=np.array(["a", None], dtype=object))
    with pytest.raises(DataError, match=r"array 'y' holds Python objects, .* numeric or text dtype$"):
        read_table(tmp_path / "a.npz")


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.parquet", "a.feather"])
@pytest.mark.parametrize("content", [b"a,b\n1,2\n", b"", b"\x80\x04."])
def test_unsafe_advice_of_libraries_is_left_out(write, name, content):
    with pytest.raises(DataError, match="damaged or not of the format") as caught:
        read_table(write(name, content))
    message = str(caught.value)
    assert "pickle" not in message
    assert ".;" not in message
    assert message.endswith("; export it again")


def test_a_damaged_archive_is_closed(write):
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        with pytest.raises(DataError, match="damaged"):
            read_table(write("a.npz", b"PK\x03\x04" + bytes(50)))
        gc.collect()


def test_what_is_no_regular_file(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(DataError, match=r"pipe\.csv' is not a regular file"):
        read_table(tmp_path / "pipe.csv")
    with pytest.raises(DataError, match=r"'/dev/null' is not a regular file"):
        read_table("/dev/null")
    (tmp_path / "d.csv").mkdir()
    with pytest.raises(DataError, match=r"d\.csv' is a folder, not a regular file; name a file in it"):
        read_table(tmp_path / "d.csv")


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(3), r"shape \(3,\).*reshape\(-1, 1\)"),
        (np.zeros((2, 2, 2)), "2-D"),
        (np.array([["a", "b"]]), "not numeric .*'x0', 'x1'"),
        (np.zeros((2, 1), complex), "not numeric .*complex128.*'x0'"),
        (np.zeros((0, 2)), "has no rows"),
        (np.zeros((2, 0)), "no columns left"),
        (np.array([[1, np.nan]]), r"missing values in 'x1' \(1\)"),
    ],
)
def test_arrays_that_cannot_be_used(tmp_path, array, message):
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(DataError, match=r"a\.npy'.*" + message):
        read_table(tmp_path / "a.npy")


def test_arrays_in_npz_must_have_valid_names_and_lengths(tmp_path):
    np.savez(tmp_path / "a.npz", data=np.eye(2))
    with pytest.raises(DataError, match=r"a\.npz' has no array 'X' but 'data'"):
        read_table(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", X=np.eye(2), y=np.zeros(3))
    with pytest.raises(DataError, match=r"a\.npz'.*array 'y' has shape \(3,\) where 'X' has 2 rows"):
        read_table(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", X=np.array(3.0), y=np.zeros(1))
    with pytest.raises(DataError, match=r"a\.npz' holds an array of shape \(\);.*2-D"):
        read_table(tmp_path / "a.npz")
    with (tmp_path / "a.npy").open("wb") as handle:
        np.savez(handle, X=np.eye(2))
    with pytest.raises(DataError, match=r"a\.npy' is an \.npz archive; give it the suffix"):
        read_table(tmp_path / "a.npy")
