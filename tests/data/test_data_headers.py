"""Detection of headers, and column names that cannot be used."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedkmeans.data import read_table
from fedkmeans.errors import DataError, as_typed


@pytest.mark.parametrize(
    ("name", "first"),
    [("a.csv", "0,1,2"), ("a.csv", "2019;2020;2021"), ("a.txt", "1 2 3"), ("a.csv", "0"), ("a.csv", ",0,1")],
)
def test_numbers_that_may_be_names_must_be_explained(write, name, first):
    path = write(name, f"{first}\n{first.replace('0', '5')}\n")
    with pytest.raises(DataError) as caught:
        read_table(path, client_name="bern")
    message = str(caught.value)
    assert message.startswith(f"client 'bern' (file {str(path)!r}) starts with ")
    assert message.endswith("say which with header=True or header=False")
    assert as_typed(caught.value).endswith("say which with --header yes or --header no")


def test_header_says_what_the_first_line_is(write):
    path = write("a.csv", "0,1\n5,6\n")
    named = read_table(path, header=True)
    assert (named.feature_names, named.is_named, named.X.tolist()) == (("0", "1"), True, [[5, 6]])
    plain = read_table(path, header=False)
    assert (plain.feature_names, plain.is_named, plain.X.tolist()) == (
        ("x0", "x1"),
        False,
        [[0, 1], [5, 6]],
    )


def test_no_header_though_the_first_line_is_text(write):
    table = read_table(write("a.csv", "u,1\nv,2\n"), header=False, label="x0")
    assert (table.labels.tolist(), table.X.tolist()) == (["u", "v"], [[1], [2]])


@pytest.mark.parametrize(
    "content",
    ["2,1\n3,4\n", "1,1\n3,4\n", "1.0,2.0\n3,4\n", "-1,2\n3,4\n", "1,2\n", "7\n8\n", "9" * 30 + "\n8\n"],
)
def test_other_numbers_are_rows(write, content):
    table = read_table(write("a.csv", content))
    assert (table.is_named, len(table.X)) == (False, content.count("\n"))


def test_line_breaks_and_delimiters_in_quoted_names(write):
    table = read_table(write("a.csv", '"a\r\nx";"u,v,w";c\r\n1;2;3\r\n'))
    assert (table.feature_names, table.X.tolist()) == (("a x", "u,v,w", "c"), [[1, 2, 3]])
    assert read_table(write("b.csv", 'size 5",b\n1,2\n')).feature_names == ('size 5"', "b")


def test_a_trailing_delimiter_is_no_column(write):
    table = read_table(write("a.csv", "a,b,\n1,2,\n3,4,\n"))
    assert (table.feature_names, table.X.tolist()) == (("a", "b"), [[1, 2], [3, 4]])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            ",a,b\n0,1,2\n",
            r"column 1 has no name \(row numbers\?\); name it in the file or export without it",
        ),
        ("a,,b\n0,1,2\n", r"column 2 has no name; name it in the file or export without it"),
        ("a,b,\n0,1,2\n", r"column 3 has no name; name it in the file or export without it"),
        ("a,b,,\n0,1,,\n", r"column 3 has no name"),
    ],
)
@pytest.mark.parametrize("options", [{}, {"drop": [""]}])
def test_columns_without_a_name_are_refused(write, content, message, options):
    with pytest.raises(DataError, match=r"a\.csv'.*" + message):
        read_table(write("a.csv", content), **options)


@pytest.mark.parametrize("letter", ["\x1b", "\x07", "\x9b", "\x7f"])
def test_control_characters_in_names_are_refused_and_shown_as_escapes(write, tmp_path, letter):
    name = f"{letter}[31mred"
    pq.write_table(pa.table({"a": [1], name: [2]}), tmp_path / "b.parquet")
    for path in (write("a.csv", f"a,{name}\n1,2\n"), tmp_path / "b.parquet"):
        with pytest.raises(
            DataError, match=r"the name of column 2, .* has control characters; rename"
        ) as caught:
            read_table(path)
        assert letter not in str(caught.value)
        assert repr(name) in str(caught.value)


def test_no_message_shows_a_control_character_from_a_file_or_a_caller(write):
    path = write("a.csv", "a,b\n1,\x1b[31mred\n")
    for options in ({}, {"columns": ["\x1b"]}, {"label": "\x1b"}, {"client_name": "\x1b"}):
        with pytest.raises(DataError) as caught:
            read_table(path, **options)
        assert "\x1b" not in str(caught.value)


def test_arrays_ignore_the_header_option(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[0, 1], [5, 6]]))
    assert read_table(tmp_path / "a.npy", header=True).X.shape == (2, 2)
