import json

import numpy as np
import pytest

from fedkmeans.data import load_leaf, read_clients, read_table
from fedkmeans.errors import DataError

GOOD = {
    "users": ["ann", "bob"],
    "num_samples": [2, 1],
    "user_data": {"ann": {"x": [[0.5, 1], [1, 0]], "y": [3, 4]}, "bob": {"x": [[0, 0]], "y": [5]}},
}


def changed(**change):
    return json.loads(json.dumps(GOOD)) | change


def with_user(name, **data):
    document = changed()
    document["user_data"][name] |= data
    return document


def test_a_leaf_file(write):
    data = load_leaf(write("data.json", json.dumps(GOOD)))
    assert data.X.dtype == np.float32
    np.testing.assert_array_equal(data.X, [[0.5, 1], [1, 0], [0, 0]])
    assert data.y.tolist() == [3, 4, 5]
    assert data.clients.tolist() == [0, 0, 1]
    assert data.client_names == ("ann", "bob")


def test_users_are_numbered_across_the_files_of_a_folder(write, tmp_path):
    other = {"users": ["cy"], "num_samples": [1], "user_data": {"cy": {"x": [[9, 9]], "y": [0]}}}
    write("b.json", json.dumps(other))
    write("a.json", json.dumps(GOOD))
    data = load_leaf(tmp_path)
    assert data.clients.tolist() == [0, 0, 1, 2]
    assert data.client_names == ("ann", "bob", "cy")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            with_user("bob", x=[[0, 0], [1]], y=[1, 2]),
            "user 'bob': 'x' must hold rows of numbers, all of one",
        ),
        (with_user("bob", x=[["0", "1"]]), "user 'bob': 'x' must hold rows of numbers"),
        (with_user("bob", x=[0, 1]), "user 'bob': 'x' must hold rows of numbers"),
        (with_user("bob", x=[[0, None]]), "user 'bob': 'x' must hold rows of numbers"),
        (with_user("bob", x=[], y=[]), "user 'bob': 'x' must hold rows of numbers"),
        (with_user("bob", x=[[0, float("nan")]]), "user 'bob': 'x' holds NaN or infinite"),
        (with_user("bob", x=[[0, 0, 0]]), "user 'bob': 'x' has 3 values per row where user 'ann' has 2"),
        (with_user("bob", y=[1, 2]), "user 'bob': 'x' has 1 rows, 'y' 2 and 'num_samples' says 1"),
        (with_user("bob", y=["a"]), "user 'bob': 'y' must hold numbers"),
        (with_user("bob", y=[0.5]), "user 'bob': 'y' must hold whole numbers"),
        (changed(num_samples=[2, 7]), "user 'bob': 'x' has 1 rows, 'y' 1 and 'num_samples' says 7"),
        (changed(num_samples=[2]), "lists of one length"),
        (changed(users=["ann", 3]), "lists of one length"),
        (changed(users=["ann", "eve"]), "'users' and 'user_data' differ in 'bob', 'eve'"),
        (changed(users=["ann", "ann"]), "lists the users 'ann' more than once"),
        (changed(user_data={"ann": {"x": [[1]]}, "bob": 3}), "user 'ann': 'user_data' must hold 'x' and 'y'"),
        (changed(users=[], num_samples=[], user_data={}), "has no users"),
        ({"users": []}, "must have the keys 'users', 'num_samples', 'user_data'"),
        ([1, 2], "is no LEAF file"),
    ],
)
def test_malformed_files_are_refused_by_file_and_user(write, document, message):
    path = write("bad.json", json.dumps(document))
    with pytest.raises(DataError, match=rf"bad\.json'.*{message}.*preprocess\.sh"):
        load_leaf(path)


@pytest.mark.parametrize("content", [json.dumps(GOOD)[:-20], b"\xff\x00\x01", "[" * 100_000])
def test_files_that_are_no_json(write, content):
    with pytest.raises(DataError, match=r"cut\.json' is not JSON, or truncated.*preprocess"):
        load_leaf(write("cut.json", content))


def test_absent_files_and_folders_without_any(tmp_path):
    with pytest.raises(DataError, match=r"no\.json' cannot be read.*check the path"):
        load_leaf(tmp_path / "no.json")
    with pytest.raises(DataError, match=r"holds no \.json file"):
        load_leaf(tmp_path)


def test_files_of_a_folder_must_be_consistent(write, tmp_path):
    write("a.json", json.dumps(GOOD))
    write("b.json", json.dumps(GOOD) + " ")
    with pytest.raises(DataError, match=r"user 'ann' is in file .*a\.json.*b\.json.*one at a time"):
        load_leaf(tmp_path)
    other = {"users": ["cy"], "num_samples": [1], "user_data": {"cy": {"x": [[9]], "y": [0]}}}
    write("b.json", json.dumps(other))
    with pytest.raises(DataError, match=r"b\.json' has 1 values per row where .*a\.json' has 2"):
        load_leaf(tmp_path)


def test_leaf_as_a_table_has_labels_and_clients(write):
    table = read_table(write("data.json", json.dumps(GOOD)))
    assert table.X.dtype == np.float32
    assert table.labels.tolist() == [3, 4, 5]
    assert table.clients.tolist() == ["ann", "ann", "bob"]
    clients = read_clients(table.path)
    assert [(client.name, len(client.X)) for client in clients] == [("ann", 2), ("bob", 1)]


def test_real_leaf_files(data_home):
    data = load_leaf(data_home / "leaf")
    assert data.X.shape == (155, 784)
    assert len(data.client_names) == 12
    assert data.client_names[0] == "f1695_12"
    assert (data.clients == 0).sum() == 17
    assert 0 <= data.X.min() < data.X.max() == 1
