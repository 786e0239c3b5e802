import decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather as pa_feather
import pyarrow.parquet as pq
import pytest

from fedkmeans.data import read_table
from fedkmeans.errors import DataError, ParameterError, as_typed

CSV = "age,sex,chol,name,target\n63,1,233.5,ann,0\n37,0,250,bob,1\n"


@pytest.fixture
def parquet(tmp_path):
    def writer(columns, name="t.parquet"):
        pq.write_table(pa.table(columns), tmp_path / name)
        return tmp_path / name

    return writer


def test_csv(write):
    table = read_table(write("a.csv", CSV), drop=["name"], label="target")
    assert table.feature_names == ("age", "sex", "chol")
    np.testing.assert_array_equal(table.X, [[63, 1, 233.5], [37, 0, 250]])
    assert table.X.flags.c_contiguous
    assert table.labels.tolist() == [0, 1]
    assert (table.clients, table.n_dropped, table.is_named) == (None, 0, True)


def test_columns_choose_and_order_the_features(write):
    table = read_table(write("a.csv", CSV), columns=["chol", "age"], label="name", client="sex")
    assert table.feature_names == ("chol", "age")
    assert table.X[0].tolist() == [233.5, 63]
    assert table.labels.tolist() == ["ann", "bob"]
    assert table.clients.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", "a\tb\n1\t2\n3\t4\n"),
        ("a.csv", "\ufeffa;b\r\n1;2\r\n3;4\r\n"),
        ("a.csv", "a,b\r1,2\r3,4\r"),
        ("a.csv", "\n\na, b\n1, 2\n3, 4\n"),
        ("a.csv", '"a","b"\n"1",2\n3,4'),
        ("a.txt", "a|b\n1|2\n\n3|4\n\n"),
        ("a.txt", "\n  a   b\n  1   2\n\n 3    4\n"),
        ("a.data", "a\tb\n1\t2\n3\t4\n"),
    ],
)
def test_text_in_many_dialects(write, name, content):
    table = read_table(write(name, content))
    assert table.feature_names == ("a", "b")
    assert table.X.dtype == np.int64
    assert table.X.tolist() == [[1, 2], [3, 4]]


def test_a_csv_with_one_column_whose_name_has_a_blank(write):
    table = read_table(write("a.csv", "blood pressure\n120\n130\n"))
    assert table.feature_names == ("blood pressure",)


@pytest.mark.parametrize(
    ("name", "content"), [("s.csv", "1.5,?,3\n4,5,6\n"), ("s.txt", "  1.5  ?  3\n  4  5  6\n")]
)
def test_text_without_header_gets_names(write, name, content):
    table = read_table(write(name, content), drop=["x1"])
    assert (table.feature_names, table.is_named) == (("x0", "x2"), False)
    assert table.X.tolist() == [[1.5, 3], [4, 6]]


def test_quoted_line_breaks_at_the_border_of_two_blocks_of_the_reader(write):
    note = "\n" * 200  # most of the file is line breaks, so a block of 1 MiB ends within quotes
    content = "a,note\n" + "".join(f'{i},"{note}"\n' for i in range(12_000))
    table = read_table(write("a.csv", content), drop=["note"])
    assert table.X.ravel().tolist() == list(range(12_000))


@pytest.mark.parametrize("save", [pq.write_table, pa_feather.write_feather])
@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ((np.float32, np.float32), np.float32),
        ((np.uint8, np.uint8), np.uint8),
        ((np.uint8, np.int16), np.int16),
        ((np.uint8, np.float32), np.float32),
        ((np.int64, np.float32), np.float64),
        ((np.bool_, np.bool_), np.uint8),
        ((np.bool_, np.float32), np.float32),
    ],
)
def test_the_common_type_of_columns_is_kept(tmp_path, save, types, expected):
    path = str(tmp_path / ("t.parquet" if save is pq.write_table else "t.feather"))
    save(pa.table({f"c{i}": np.array([0, 1, 1], dtype=t) for i, t in enumerate(types)}), path)
    table = read_table(path)
    assert table.X.dtype == expected
    assert table.X.tolist() == [[0, 0], [1, 1], [1, 1]]


def test_integers_and_booleans_with_missing_become_double(parquet):
    path = parquet({"a": pa.array([1, None, 3], pa.int8()), "b": [True, False, None], "c": [1, 2, 3]})
    table = read_table(path, missing="drop_rows")
    assert table.X.dtype == np.float64
    assert table.X.tolist() == [[1, 1, 1]]
    assert table.kept.tolist() == [True, False, False]


def test_decimals_are_numbers(parquet):
    table = read_table(parquet({"a": [decimal.Decimal("1.25"), decimal.Decimal("2.50")]}))
    assert table.X.tolist() == [[1.25], [2.5]]


def test_many_chunks_and_dropped_rows_line_up(tmp_path):
    values = np.arange(100.0)
    values[[3, 55]] = np.nan
    columns = pa.table({"a": values, "b": np.arange(100)})
    pa_feather.write_feather(columns, str(tmp_path / "t.feather"), chunksize=7)  # parquet merges groups
    table = read_table(tmp_path / "t.feather", missing="drop_rows")
    assert table.n_dropped == 2
    np.testing.assert_array_equal(table.X[:, 0], np.delete(np.arange(100), [3, 55]))
    np.testing.assert_array_equal(table.X[:, 0], table.X[:, 1])


def test_arrow_stream(tmp_path):
    data = pa.table({"a": [1, 2]})
    with pa.ipc.new_stream(str(tmp_path / "t.arrow"), data.schema) as stream:
        stream.write_table(data)
    assert read_table(tmp_path / "t.arrow").X.tolist() == [[1], [2]]


def test_npy_keeps_its_type(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[1, 2], [3, 4]], dtype=np.uint8))
    table = read_table(tmp_path / "a.npy")
    assert (table.X.dtype, table.feature_names, table.is_named) == (np.uint8, ("x0", "x1"), False)
    labelled = read_table(tmp_path / "a.npy", label="x1")
    assert (labelled.X.tolist(), labelled.labels.tolist()) == ([[1], [3]], [2, 4])


def test_npz_with_labels_and_clients(tmp_path):
    arrays = {"X": np.eye(3, dtype=np.float32), "y": np.array([2, 1, 0]), "client": np.array(["b", "a", "b"])}
    np.savez(tmp_path / "a.npz", **arrays)
    for options in ({}, {"label": "y", "client": "client"}):
        table = read_table(tmp_path / "a.npz", **options)
        assert table.X.dtype == np.float32
        assert table.labels.tolist() == [2, 1, 0]
        assert table.clients.tolist() == ["b", "a", "b"]


def test_missing_values_are_refused_by_column_and_count(write):
    path = write("h.csv", "a,b,c\n1,?,1\nNA,,1\n3,null,1\n4,5,1\n")
    with pytest.raises(DataError) as caught:
        read_table(path, client_name="zurich")
    message = str(caught.value)
    assert message.startswith(
        f"client 'zurich' (file {str(path)!r}): missing values in 'a' (1), 'b' (3) of 4 rows;"
    )
    assert message.endswith("leave out these rows with missing='drop_rows', or the columns with drop=[...]")
    assert as_typed(caught.value).endswith(
        "leave out these rows with --missing drop-rows, or the columns with --drop NAME"
    )
    table = read_table(path, missing="drop_rows")
    assert (table.X.tolist(), table.n_dropped, table.kept.tolist()) == ([[4, 5, 1]], 3, [False] * 3 + [True])


def test_missing_labels_count_too(write):
    path = write("h.csv", "a,y\n1,u\n2,\n")
    with pytest.raises(DataError, match=r"missing values in 'y' \(1\)"):
        read_table(path, label="y")
    table = read_table(path, label="y", missing="drop_rows")
    assert (table.labels.tolist(), table.X.tolist()) == (["u"], [[1]])


def test_whole_number_labels_stay_whole_when_rows_drop(write):
    table = read_table(write("h.csv", "a,y\n1,7\n2,\n"), label="y", missing="drop_rows")
    assert (table.labels.dtype, table.labels.tolist()) == (np.int64, [7])


def test_missing_in_dropped_columns_does_not_matter(write):
    assert read_table(write("h.csv", "a,b\n1,?\n2,3\n"), drop=["b"]).n_dropped == 0


def test_every_row_missing(write):
    path = write("h.csv", "a,b\n1,?\n2,\n")
    with pytest.raises(
        DataError, match=r"h\.csv'.*every row has a missing value \(most in 'b', 2 of 2\).*drop=\['b'\]"
    ):
        read_table(path, missing="drop_rows")


def test_a_row_without_client_is_always_refused(write):
    path = write("h.csv", "a,site\n1,x\n2,\n")
    with pytest.raises(DataError, match=r"h\.csv'.*client column 'site' is empty in 1 row; fill it in"):
        read_table(path, client="site", missing="drop_rows")


@pytest.mark.parametrize("missing", ["error", "drop_rows"])
def test_infinite_values_are_refused_always(write, missing):
    path = write("h.csv", "a,b\n1,inf\n2,-inf\n3,4\n")
    with pytest.raises(DataError, match=r"h\.csv'.*infinite values in 'b' \(2\).*drop=\[\.\.\.\]"):
        read_table(path, missing=missing)


def test_infinite_values_in_a_matrix_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[1, np.inf]]))
    with pytest.raises(DataError, match=r"infinite values in 'x1' \(1\)"):
        read_table(tmp_path / "a.npy")


def test_columns_that_are_not_numeric_are_all_named(write):
    path = write("h.csv", "a,name,day,c\n1,x,2020-01-01,q\n")
    with pytest.raises(DataError) as caught:
        read_table(path)
    message = str(caught.value)
    assert "not numeric (date32[day], string): 'name', 'day', 'c'" in message
    assert "; line 2 has 'x' in 'name'; leave them out with " in message
    assert "drop=['name', 'day', 'c'], or name the numeric ones with columns=[...]" in message
    assert "--drop name --drop day --drop c, or name" in as_typed(caught.value)
    assert as_typed(caught.value).endswith("--columns NAME,...")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"columns": ["agee"]},
            r"no column 'agee'; did you mean 'age', .*\? Correct columns=\[\.\.\.\]\.$",
        ),
        ({"columns": ["CHOL"]}, "no column 'CHOL'; did you mean 'chol'"),
        (
            {"drop": ["zzz"]},
            r"no column 'zzz'; it has 'age', 'sex', 'chol', 'name', 'target'\. "
            r"Correct drop=\[\.\.\.\]\.$",
        ),
        ({"drop": [""]}, "no column ''; it has 'age'"),
        (
            {"label": "targt"},
            r"no label column 'targt'; did you mean 'target'\? Correct label=\.\.\.\.$",
        ),
        (
            {"client": "hospital"},
            r"no client column 'hospital'; it has 'age'.*'target'\. "
            r"Correct client=\.\.\.\.$",
        ),
        ({"columns": ["age"], "drop": ["age"]}, "'age' is in columns and is also in drop; .*--drop"),
        ({"columns": ["age", "target"], "label": "target"}, "'target' is in columns and is also the label;"),
        ({"columns": ["age", "sex"], "client": "sex"}, "'sex' is in columns and is also the client column;"),
        ({"columns": ["age", "age"]}, "columns names 'age' 2 times; name it once"),
        ({"drop": ["age", "sex", "chol", "name", "target"]}, "no columns left"),
        ({"columns": []}, "no columns left"),
    ],
)
def test_unknown_columns_are_named_with_similar_ones(write, options, message):
    path = write("h.csv", CSV)
    with pytest.raises(DataError, match=r"client 'bern' \(file .*h\.csv'\).*" + message):
        read_table(path, client_name="bern", **options)


def test_labels_that_are_not_utf8(write):
    with pytest.raises(DataError, match=r"column 'y' is not UTF-8 text; save the file as UTF-8"):
        read_table(write("a.csv", b"a,y\n1,\xe9\n"), label="y")


def test_labels_of_an_array_that_are_not_utf8(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.eye(2), y=np.array([b"\xff", b"b"]))
    with pytest.raises(DataError, match=r"a\.npz': column 'y' is not UTF-8 text; save the file as UTF-8"):
        read_table(tmp_path / "a.npz")


def test_unknown_rule_for_missing(write):
    with pytest.raises(ParameterError, match=r"unknown rule missing='zero'.*'error', 'drop_rows'"):
        read_table(write("a.csv", CSV), missing="zero")


@pytest.mark.parametrize("name", ["s1", "s2"])
def test_real_s_sets(data_home, name):
    table = read_table(data_home / "s-sets" / f"{name}.csv", label="x2")
    assert table.X.shape == (5000, 2)
    assert len(np.unique(table.labels)) == 15


def test_a_pandas_index_saved_as_a_column_is_refused(tmp_path):
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0]}, index=[7, 9, 11])
    frame.to_parquet(tmp_path / "x.parquet")
    with pytest.raises(DataError, match=r"'__index_level_0__' holds row numbers; .*index=False"):
        read_table(tmp_path / "x.parquet")
    frame.to_parquet(tmp_path / "y.parquet", index=False)
    assert read_table(tmp_path / "y.parquet").feature_names == ("a",)
