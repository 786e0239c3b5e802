import numpy as np
import pytest

from fedkmeans.data import labels_by_file, read_clients
from fedkmeans.errors import DataError, as_typed


def test_one_file_per_client(write):
    a, b = write("a.csv", "x,y\n1,2\n"), write("b.csv", "x,y\n3,4\n5,6\n")
    clients = read_clients([b, str(a)])
    assert [client.name for client in clients] == ["b", "a"]
    assert [client.X.tolist() for client in clients] == [[[3, 4], [5, 6]], [[1, 2]]]
    assert [client.rows.tolist() for client in clients] == [[0, 1], [0]]


def test_a_folder_gives_its_data_files_in_order(write, tmp_path):
    write("b.csv", "x\n1\n")
    write("a.tsv", "x\n2\n")
    write(".hidden.csv", "x\n3\n")
    write("notes.md", "not data")
    (tmp_path / "sub.csv").mkdir()
    assert [client.name for client in read_clients(tmp_path)] == ["a", "b"]


def test_a_folder_without_data_files(write, tmp_path):
    write("notes.md", "not data")
    with pytest.raises(DataError, match=r"holds no data file; put one file per client.*'\.csv'"):
        read_clients([tmp_path])


def test_no_files():
    with pytest.raises(DataError, match="no files given; name at least one"):
        read_clients([])


def test_names_are_made_unique_by_folders_and_suffixes(write):
    paths = [
        write("north/2020/data.csv", "x\n1\n"),
        write("south/2020/data.csv", "x\n2\n"),
        write("south/2021/data.csv", "x\n3\n"),
        write("east/site.csv", "x\n4\n"),
        write("east/site.tsv", "x\n5\n"),
    ]
    names = [client.name for client in read_clients(paths)]
    assert names == ["north/2020/data", "south/2020/data", "2021/data", "site.csv", "site.tsv"]


def test_the_same_file_twice(write, tmp_path):
    path = write("a.csv", "x\n1\n")
    with pytest.raises(DataError, match=r"a\.csv' is given twice .*name each file once"):
        read_clients([path, tmp_path / "." / "a.csv"])
    (tmp_path / "b.csv").symlink_to(path)
    with pytest.raises(DataError, match=r"b\.csv' is given twice \(also as .*a\.csv'\)"):
        read_clients([path, tmp_path / "b.csv"])


def test_two_files_with_one_content(write):
    paths = [write("a.csv", "x\n1\n"), write("c.csv", "x\n2\n"), write("b.csv", "x\n1\n")]
    with pytest.raises(DataError, match=r"a\.csv' and .*b\.csv' have the same content; remove one"):
        read_clients(paths)


def test_an_absent_file_names_the_client(tmp_path):
    with pytest.raises(DataError, match=r"client 'gone' \(file .*gone\.csv'\) does not exist"):
        read_clients([tmp_path / "gone.csv"])


def test_other_order_becomes_the_order_of_the_first(write):
    clients = read_clients([write("a.csv", "x,y\n1,2\n"), write("b.csv", "y,x\n4,3\n")])
    assert clients[1].feature_names == ("x", "y")
    assert clients[1].X.tolist() == [[3, 4]]


def test_other_columns_are_refused(write):
    paths = [write("a.csv", "x,y,u\n1,2,3\n"), write("b.csv", "x,z\n3,4\n")]
    with pytest.raises(DataError) as caught:
        read_clients(paths)
    assert str(caught.value).startswith(
        "clients 'a' and 'b' have different columns: only 'a' has 'y', 'u', only 'b' has 'z'; "
    )
    assert "leave the others out with drop=[...], or" in str(caught.value)
    assert "leave the others out with --drop NAME, or" in as_typed(caught.value)
    assert len(read_clients(paths, columns=["x"])) == 2


def test_files_without_names_are_compared_by_count(tmp_path):
    for name, width in (("a", 2), ("b", 2), ("c", 3)):
        np.save(tmp_path / f"{name}.npy", np.full((2, width), ord(name)))
    assert len(read_clients([tmp_path / "a.npy", tmp_path / "b.npy"])) == 2
    with pytest.raises(DataError, match="clients 'a' and 'c' have 2 and 3 columns; give all files the same"):
        read_clients(tmp_path)


@pytest.mark.parametrize("first", ["named", "nameless"])
def test_files_with_and_without_names_cannot_be_combined(write, tmp_path, first):
    np.save(tmp_path / "b.npy", np.ones((1, 2)))
    paths = [write("a.csv", "u,v\n1,2\n"), tmp_path / "b.npy"]
    with pytest.raises(DataError) as caught:
        read_clients(paths if first == "named" else paths[::-1])
    message = str(caught.value)
    assert "'a'" in message
    assert "'b' has no column names and the other has; give that file a header line, or save" in message


def test_clients_say_whether_their_columns_have_names(write):
    assert read_clients(write("a.csv", "u,v\n1,2\n"))[0].is_named
    assert not read_clients(write("b.csv", "1.5,2\n3,4\n"))[0].is_named
    clients = read_clients([write("c.csv", "1,2\n3,4\n"), write("d.csv", "1,2\n5,6\n")], header=True)
    assert [(c.feature_names, c.is_named, c.X.tolist()) for c in clients] == [
        (("1", "2"), True, [[3, 4]]),
        (("1", "2"), True, [[5, 6]]),
    ]


def test_a_client_is_named_after_the_link_not_its_target(write, tmp_path):
    data = write("store/v7.csv", "x\n1\n")
    (tmp_path / "zurich.csv").symlink_to(data)
    clients = read_clients([tmp_path / "zurich.csv"])
    assert (clients[0].name, clients[0].path) == ("zurich", tmp_path / "zurich.csv")
    (tmp_path / "bern.csv").symlink_to(tmp_path / "gone.csv")
    with pytest.raises(
        DataError,
        match=r"client 'bern' \(file .*bern\.csv'\) is a link to .*gone\.csv', which does not exist",
    ):
        read_clients([tmp_path / "bern.csv"])


def test_links_in_a_cycle(tmp_path):
    (tmp_path / "a.csv").symlink_to(tmp_path / "b.csv")
    (tmp_path / "b.csv").symlink_to(tmp_path / "a.csv")
    with pytest.raises(DataError, match=r"client 'a' .*cannot be read: .*symbolic links"):
        read_clients([tmp_path / "a.csv"])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("README.txt", "These are the data of two hospitals.\nSee below.\n"),
        ("notes.txt", "ask Ann about patient 7\n"),
        ("meta.json", '{"a": 1}'),
    ],
)
def test_a_file_that_is_no_table_among_tables(write, tmp_path, name, content):
    write("a.csv", "x,y\n1,2\n")
    write("b.csv", "x,y\n3,4\n")
    write(name, content)
    with pytest.raises(DataError) as caught:
        read_clients(tmp_path)
    assert f"if {name!r} is no client's table, move it out of the folder {str(tmp_path)!r}" in str(
        caught.value
    )
    assert "\n" not in str(caught.value)


def test_an_error_in_a_table_does_not_suggest_to_move_it(write, tmp_path):
    write("a.csv", "x,y\n1,2\n")
    write("b.csv", "x,y\n3\n")
    with pytest.raises(DataError, match="line 2 has 1 value") as caught:
        read_clients(tmp_path)
    assert "move it" not in str(caught.value)


def test_a_folder_with_only_folders_is_refused(write, tmp_path):
    write("north/a.csv", "x\n1\n")
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        DataError, match=r"holds no data file, but its sub-folders '[^']*north' do; name these"
    ):
        read_clients(tmp_path)


def test_errors_on_clients_for_a_model_do_not_suggest_to_drop_columns(write):
    paths = [write("a.csv", "x,y,u\n1,2,3\n"), write("b.csv", "x,z\n3,4\n")]
    with pytest.raises(DataError, match="give all files the columns of the model") as caught:
        read_clients(paths, fixed_columns=True)
    assert "drop=" not in str(caught.value)
    path = write("all.csv", "site,x\nB,1\nA,?\n")
    with pytest.raises(DataError, match="fill them in, or remove these clients' rows") as caught:
        read_clients(path, client="site", missing="drop_rows", fixed_columns=True)
    assert "drop=" not in str(caught.value)


def test_one_file_with_a_client_column(write):
    path = write("all.csv", "site,x,t\nB,1,0\nA,2,1\nB,3,0\nA,?,1\nB,5,1\n")
    clients = read_clients(path, client="site", label="t", missing="drop_rows")
    assert [client.name for client in clients] == ["A", "B"]
    assert [client.X.ravel().tolist() for client in clients] == [[2], [1, 3, 5]]
    assert [client.labels.tolist() for client in clients] == [[1], [0, 0, 1]]
    assert [client.rows.tolist() for client in clients] == [[1], [0, 2, 4]]
    assert [client.n_dropped for client in clients] == [1, 0]
    assert {client.n_rows_in_file for client in clients} == {5}


def test_a_client_that_loses_all_its_rows(write):
    path = write("all.csv", "site,x\nB,1\nA,?\n")
    with pytest.raises(DataError, match=r"all\.csv': clients 'A' have a missing value in every row.*drop="):
        read_clients(path, client="site", missing="drop_rows")


def test_a_client_in_two_files(write):
    paths = [write("a.csv", "site,x\nB,1\n"), write("b.csv", "site,x\nB,2\n")]
    with pytest.raises(DataError, match=r"client 'B' is in file .*a\.csv' and in .*b\.csv'; put its rows"):
        read_clients(paths, client="site")


def test_labels_are_in_the_order_of_the_rows_of_each_file(write):
    both = write("both.csv", "site,x\nB,1\nA,2\nB,?\nA,4\n")
    more = write("more.csv", "site,x\nC,7\n")
    clients = read_clients([both, more], client="site", missing="drop_rows")
    found = labels_by_file(clients, [client.X.ravel() * 10 for client in clients])
    assert found[both][0].tolist() == [10, 20, 40]
    assert found[both][1].tolist() == [True, True, False, True]
    assert found[more][0].tolist() == [70]


def test_real_hospitals(data_home):
    folder = data_home / "heart-disease"
    with pytest.raises(
        DataError, match=r"client 'processed\.cleveland'.*'ca' \(4\), 'thal' \(2\) of 303 rows"
    ):
        read_clients(folder, label="target")
    clients = read_clients(folder, label="target", drop=["slope", "ca", "thal"], missing="drop_rows")
    names = [client.name for client in clients]
    assert names == [f"processed.{place}" for place in ("cleveland", "hungarian", "switzerland", "va")]
    assert [client.n_rows_in_file for client in clients] == [303, 294, 123, 200]
    assert all(len(client.X) + client.n_dropped == client.n_rows_in_file for client in clients)
    assert clients[0].X.shape == (303, 10)
    assert set(np.concatenate([client.labels for client in clients])) == {0, 1, 2, 3, 4}
