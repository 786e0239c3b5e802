import dataclasses
import gzip
import random
import struct

import numpy as np
import pytest
from sklearn import datasets as sk_datasets
from sklearn.cluster import KMeans

from fedkmeans.data import DATASETS, load_dataset, load_digits, load_femnist, load_mnist, load_synthetic
from fedkmeans.errors import DataError, ParameterError


def idx(array):
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(np.uint8).tobytes()


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty FEDKMEANS_DATA for the files of a test."""
    monkeypatch.setenv("FEDKMEANS_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture
def no_openml(monkeypatch):
    def fail(*args, **kwargs):
        raise OSError("Name or service\nnot known")

    monkeypatch.setattr(sk_datasets, "fetch_openml", fail)


def small_mnist(write, n_images=3, n_labels=3):
    images = np.arange(n_images * 4).reshape(n_images, 2, 2)
    write("mnist/t10k-images-idx3-ubyte.gz", gzip.compress(idx(images)))
    write("mnist/t10k-labels-idx1-ubyte", idx(np.arange(n_labels)))
    return images


def test_synthetic_is_the_set_of_the_paper():
    data = load_synthetic()
    assert data.X.shape == (10_100, 2)
    assert np.bincount(data.y).tolist() == [2000] * 5 + [100]
    random.seed(1)  # as in the paper's code; the loader must not depend on global state
    first = [2 * random.random() - 1, 2 * random.random() - 1]
    np.testing.assert_array_equal(data.X[10_000], first)
    assert np.abs(data.X[10_000:]).max() <= 1
    score = KMeans(5, n_init=20, random_state=0).fit(data.X).inertia_ / len(data.X)
    assert score == pytest.approx(0.0743, abs=5e-5)


def test_synthetic_does_not_use_the_global_generator():
    random.seed(7)
    expected = random.random()
    random.seed(7)
    load_synthetic()
    assert random.random() == expected


def test_digits_are_scaled_to_one():
    data = load_digits()
    assert data.X.shape == (1797, 64)
    assert (data.X.min(), data.X.max()) == (0, 1)
    assert len(data.feature_names) == 64
    assert data.y[:4].tolist() == [0, 1, 2, 3]


def test_a_dataset_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        load_digits().name = "other"


def test_registry_has_the_agreed_names_and_refuses_others():
    assert list(DATASETS) == [
        "synthetic",
        "digits",
        "mnist-10k",
        "mnist",
        "femnist-iid",
        "femnist-half-iid",
        "femnist-non-iid-part",
        "femnist-writers",
    ]
    assert load_dataset("digits").name == "digits"
    with pytest.raises(ParameterError, match=r"unknown data set 'mnits'; choose one of 'synthetic'.*'mnist'"):
        load_dataset("mnits")


def test_mnist_is_read_from_plain_and_gzipped_files(home, write, no_openml):
    images = small_mnist(write)
    data = load_mnist("test")
    assert data.X.dtype == np.float32
    np.testing.assert_allclose(data.X, images.reshape(3, 4) / 255, rtol=1e-6)
    assert data.y.tolist() == [0, 1, 2]


def test_mnist_files_that_disagree(home, write, no_openml):
    small_mnist(write, n_labels=2)
    with pytest.raises(DataError, match=r"images-idx3.*3 images.*labels-idx1.*2 labels; fetch both again"):
        load_mnist("test")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (gzip.compress(idx(np.zeros((3, 2, 2))))[:-9], "t10k-images.*cannot be read.*fetch it again"),
        (b"no gzip at all", "t10k-images.*cannot be read.*fetch it again"),
        (gzip.compress(idx(np.zeros((3, 2, 2)))[:-1]), "announces 12 values and holds 11.*truncated"),
        (gzip.compress(idx(np.zeros((3, 2, 2))) + b"x"), "announces 12 values and holds 13"),
        (gzip.compress(idx(np.zeros(12))), "no IDX file of bytes in 3 dimensions"),
        (gzip.compress(idx(np.zeros((3, 2, 2)))[:9]), "no IDX file of bytes in 3 dimensions"),
    ],
    ids=["cut off", "no gzip", "a byte less", "a byte more", "one dimension", "half a header"],
)
def test_damaged_mnist_is_refused_by_file(home, write, no_openml, content, message):
    small_mnist(write)
    write("mnist/t10k-images-idx3-ubyte.gz", content)
    with pytest.raises(DataError, match=message):
        load_mnist("test")


@pytest.mark.parametrize("set_home", [True, False])
def test_mnist_without_files_or_network_says_what_to_do(tmp_path, monkeypatch, no_openml, set_home):
    monkeypatch.delenv("FEDKMEANS_DATA", raising=False)
    if set_home:
        monkeypatch.setenv("FEDKMEANS_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"OpenML: Name or service not known; .*set FEDKMEANS_DATA") as caught:
        load_mnist()
    assert "\n" not in str(caught.value)


def test_mnist_from_openml_takes_the_training_rows_first(monkeypatch):
    monkeypatch.delenv("FEDKMEANS_DATA", raising=False)
    pixels = np.zeros((70_000, 1))
    pixels[60_000:] = 255
    labels = np.array(["3"] * 60_000 + ["8"] * 10_000, dtype=object)
    monkeypatch.setattr(sk_datasets, "fetch_openml", lambda *args, **kwargs: (pixels, labels))
    train, test, first = (load_mnist(variant) for variant in ("train", "test", "first-10k"))
    assert (len(train.X), len(test.X), len(first.X)) == (60_000, 10_000, 10_000)
    assert (set(train.y), set(test.y), test.X.min(), train.X.max()) == ({3}, {8}, 1, 0)
    assert (train.X.dtype, train.y.dtype) == (np.float32, np.intp)
    monkeypatch.setattr(sk_datasets, "fetch_openml", lambda *args, **kwargs: (pixels[:9], labels[:9]))
    with pytest.raises(DataError, match="OpenML sent 9 MNIST images instead of 70000"):
        load_mnist()


def test_unknown_variants_are_refused():
    with pytest.raises(ParameterError, match="variant 'all'; choose one of 'first-10k', 'train', 'test'"):
        load_mnist("all")
    with pytest.raises(ParameterError, match="distribution 'x'; choose one of 'iid', 'half-iid'"):
        load_femnist("x")


def test_a_data_variable_that_names_no_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDKMEANS_DATA", str(tmp_path / "absent"))
    with pytest.raises(
        DataError, match=r"FEDKMEANS_DATA names .*absent.*not a folder; correct it or unset it"
    ):
        load_femnist()


def test_femnist_without_files_says_how_to_make_it(home):
    with pytest.raises(DataError, match=r"paper_iid.npz.*FEDKMEANS_DATA.*LEAF.*load_leaf\(folder\)"):
        load_femnist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": None, "client": None}, "lacks the arrays 'y', 'client'"),
        ({"X": np.zeros((2, 784))}, "does not hold one 784-pixel image"),
        ({"client": np.zeros(3, np.uint8)}, "does not hold one 784-pixel image per label and client"),
        ({"client": np.array([0, 2], np.uint8)}, "'client' must number the clients 0, 1"),
        ({"X": np.array([None, "a"], dtype=object)}, "cannot be read.*allow_pickle"),
    ],
)
def test_femnist_is_checked(home, change, message):
    arrays = {"X": np.zeros((2, 784), np.uint8), "y": np.zeros(2, np.uint8), "client": np.zeros(2, np.uint8)}
    (home / "femnist").mkdir()
    arrays = {key: value for key, value in (arrays | change).items() if value is not None}
    np.savez(home / "femnist" / "paper_iid.npz", **arrays)
    with pytest.raises(DataError, match=r"paper_iid\.npz.*" + message):
        load_femnist()


def test_truncated_femnist_is_refused(home):
    (home / "femnist").mkdir()
    path = home / "femnist" / "paper_iid.npz"
    np.savez_compressed(path, X=np.zeros((9, 784), np.uint8))
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DataError, match=r"paper_iid\.npz.*cannot be read.*fetch it again"):
        load_femnist()


@pytest.mark.parametrize(
    ("variant", "n", "first"), [("first-10k", 10_000, [5, 0, 4, 1]), ("test", 10_000, [7, 2, 1, 0])]
)
def test_real_mnist(data_home, variant, n, first):
    data = load_mnist(variant)
    assert data.X.shape == (n, 784)
    assert (data.X.dtype, data.X.min(), data.X.max()) == (np.float32, 0, 1)
    assert data.y[:4].tolist() == first


def test_real_mnist_training_set_begins_with_the_first_10k(data_home):
    train = load_mnist("train")
    assert train.X.shape == (60_000, 784)
    np.testing.assert_array_equal(train.X[:10_000], load_mnist("first-10k").X)


@pytest.mark.parametrize(
    ("distribution", "n", "n_clients"),
    [("iid", 16_744, 100), ("half-iid", 16_434, 100), ("non-iid-part", 8_217, 100), ("writers", 46_258, 300)],
)
def test_real_femnist(data_home, distribution, n, n_clients):
    data = load_dataset(f"femnist-{distribution}")
    assert data.X.shape == (n, 784)
    assert (data.X.dtype, data.X.max()) == (np.float32, 1)
    assert np.bincount(data.clients).shape == (n_clients,)
    assert len(np.unique(data.y)) == 62
    assert (data.client_names is None) == (distribution != "writers")
