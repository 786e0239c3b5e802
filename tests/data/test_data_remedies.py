"""Remedies in errors: for values that are no numbers, and for the fixed columns of a model."""

import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedkmeans.data import read_table
from fedkmeans.errors import DataError


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a;b\n1;2\n0,13;4\n", "line 3 has '0,13' in 'a'; decimal commas\\? export with points$"),
        ("a;b\n1.234,5;2\n", "'1.234,5' in 'a'; decimal commas"),
        ('a,b\n"1,234.5",2\n', "line 2 has '1,234.5' in 'a'; thousands separators\\? export without them$"),
        ('a,b\n"1,234,567",2\n', "thousands separators\\?"),
        ("a,b\n1 234,2\n", "'1 234' in 'a'; thousands separators"),
        ("a;b\n1,234;2\n", "decimal commas or thousands separators\\?"),
        ("a,b\n\n1,2\na,b\n3,4\n", "line 4 has 'a' in 'a'; that line repeats the header"),
        ("a,b\n?,1\n3,1\n-,1\n", "line 4 has '-' in 'a'; leave them out with drop=\\['a'\\]"),
        ('a,b\n1,"x\ny"\n', r"line 2 has 'x\\ny' in 'b'; leave them out"),
        ("a,my col\n1,x\n", r"drop=\['my col'\], or"),
        ("a,b\n1_000,1\n", "'1_000' in 'a'"),
        (f"a,b\n{'z' * 500},1\n", "'z{39}…' in 'a'"),
    ],
)
def test_the_first_value_that_is_no_number_is_shown_and_explained(write, content, message):
    with pytest.raises(DataError, match="columns that are not numeric .*" + message) as caught:
        read_table(write("a.csv", content))
    assert "\n" not in str(caught.value)


def test_values_of_other_formats_are_shown_by_row(tmp_path):
    pq.write_table(pa.table({"a": [None, "1", "0,5"]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"row 3 has '0,5' in 'a'; decimal commas"):
        read_table(tmp_path / "a.parquet")


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (
            "a,b\n1,?\n2,3\n",
            {},
            "fill them in, or leave out these rows with missing='drop_rows'$",
        ),
        ("a,b\n1,?\n2,?\n", {"missing": "drop_rows"}, "every row .*; fill in the values$"),
        ("a,b\n1,x\n", {}, "not numeric .*; correct the values in the file$"),
        ("a,b\n1,inf\n", {}, "infinite values in 'b' .*; correct them in the file$"),
        ("a,b\n1,2\n", {"columns": ["a", "c"]}, "no column 'c'; .* Give the file the columns of the model"),
    ],
)
def test_columns_of_a_model_cannot_be_left_out(write, content, options, message):
    path = write("a.csv", content)
    with pytest.raises(DataError, match=message) as caught:
        read_table(path, fixed_columns=True, **options)
    assert "drop=" not in str(caught.value)
    assert "columns=" not in str(caught.value)


@pytest.mark.parametrize("name", ["a.csv", "a.npy", "a.json"])
def test_large_values_cause_no_warnings(write, tmp_path, name):
    path = write(
        name,
        "a,b\n1e200,-1e200\n"
        if name == "a.csv"
        else '{"users": ["u"], "num_samples": [1], "user_data": {"u": {"x": [[1e200, 2]], "y": [1]}}}',
    )
    if name == "a.npy":
        np.save(path, np.array([[1e200, -1e200]]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if name == "a.json":  # LEAF files are read in single precision
            with pytest.raises(DataError, match=r"user 'u': 'x' holds values beyond single precision"):
                read_table(path)
        else:
            assert read_table(path).X.tolist() == [[1e200, -1e200]]
