import numpy as np
import pytest

from fedkmeans import FKM, FederatedKMeans, InProcess, KFed, Site, SitePolicy
from fedkmeans.algorithms.fkm import fkm_target
from fedkmeans.algorithms.state import State
from fedkmeans.client import local_kmeans
from fedkmeans.client.local_kmeans import awasthi_sheffet, top_directions
from fedkmeans.errors import ParameterError
from fedkmeans.kernels import KERNELS, find_kernel
from fedkmeans.kernels.reference.kmeans import kmeans, kmeans_plusplus
from fedkmeans.kernels.reference.lloyd import assign, cluster_sums, local_update
from fedkmeans.metrics import score_per_sample
from fedkmeans.protocol.exchange import run
from fedkmeans.protocol.messages import LocalClusters
from fedkmeans.registry import ALGORITHMS, PooledKMeans, make


def separated(n_clients=10, per_client=2, k=5, seed=0):
    """k separated groups, of which each client has only a few, as k-FED assumes."""
    rng = np.random.default_rng(seed)
    centres = 50.0 * rng.normal(size=(k, 6))
    sites = []
    for i in range(n_clients):
        own = centres[[(i + j) % k for j in range(per_client)]]
        sites.append(Site(f"c{i:02d}", np.repeat(own, 15, axis=0) + rng.normal(size=(15 * per_client, 6))))
    return InProcess(sites), centres


@pytest.mark.parametrize("variant", ["paper", "published"])
def test_kfed_recovers_separated_groups_in_one_shot(variant):
    federation, centres = separated()
    found = KFed(5, variant=variant, n_local_clusters=2, n_init=5, n_init_local=3, random_state=0)
    found.fit_federation(federation)
    gaps = np.linalg.norm(found.cluster_centers_[:, None] - centres, axis=2)
    assert sorted(gaps.argmin(axis=1)) == [0, 1, 2, 3, 4]
    assert gaps.min(axis=1).max() < 2.0
    assert found.n_iter_ == 1


def test_published_kfed_joins_centres_of_several_clients_by_default():
    """Each client sees two of four groups, k' = √4: no client alone has all centres."""
    federation, centres = separated(k=4, per_client=2)
    model = KFed(4, variant="published", n_init_local=3, random_state=0).fit_federation(federation)
    gaps = np.linalg.norm(model.cluster_centers_[:, None] - centres, axis=2)
    assert sorted(gaps.argmin(axis=1)) == [0, 1, 2, 3]
    assert gaps.min(axis=1).max() < 2.0


def test_published_server_takes_the_farthest_centre_next():
    """Two devices with one centre each at 0 and 1, one at 100: the second centre must be 100."""
    shards = {"a": 0.0, "b": 1.0, "c": 100.0}
    federation = InProcess(Site(name, np.full((4, 1), x)) for name, x in shards.items())
    for seed in range(6):
        model = KFed(2, variant="published", n_local_clusters=1, random_state=seed).fit_federation(federation)
        np.testing.assert_allclose(np.sort(model.cluster_centers_[:, 0]), [0.5, 100.0])


def test_kfed_uses_only_the_sampled_clients():
    federation, _ = separated(per_client=1)
    model = KFed(2, clients_per_round=2, random_state=3).fit_federation(federation)
    assert model.history_.participants.item() == 2


@pytest.mark.parametrize("kernel", KERNELS)
def test_awasthi_sheffet_ignores_points_between_clusters(kernel):
    """Ten points between the two groups, a third of the way, belong clearly to neither."""
    X = np.concatenate([np.zeros(40), np.full(40, 10.0), np.full(10, 3.0)])[:, None]
    start = awasthi_sheffet(X, 2, np.random.default_rng(1), 1, 0, None, find_kernel(kernel))
    # The distance of 3 to 0.6 (the mean with these points) is more than a third of that to 10.
    np.testing.assert_allclose(np.sort(start[:, 0]), [0.0, 10.0], atol=1e-9)
    lloyd_step = awasthi_sheffet(X, 2, np.random.default_rng(1), 1, 1, None, find_kernel(kernel))
    np.testing.assert_allclose(np.sort(lloyd_step[:, 0]), [0.6, 10.0], atol=1e-9)


@pytest.mark.parametrize("shape", [(200, 100), (12, 5), (5, 12), (300, 3), (60, 60)])
def test_top_directions_span_the_leading_singular_space(shape):
    assert_leading_directions(shape)


def assert_leading_directions(shape):
    X = np.random.default_rng(0).normal(size=shape) @ np.diag(np.linspace(3, 0.1, shape[1]))
    found = top_directions(X, 3, np.random.default_rng(0))
    exact = np.linalg.svd(X, full_matrices=False)[2][: len(found)]
    np.testing.assert_allclose(found.T @ found, exact.T @ exact, atol=1e-6)


def test_top_directions_of_very_wide_data(monkeypatch):
    monkeypatch.setattr(local_kmeans, "_LARGEST_GRAM", 10)
    assert_leading_directions((200, 40))


def test_local_kmeans_is_as_good_as_scikit_learns(blobs):
    X, _ = blobs
    ours = score_per_sample(X, kmeans(X, 3, np.random.default_rng(0), n_init=5))
    theirs = PooledKMeans(3, n_init=5, random_state=0).fit(X).score_per_sample_
    assert ours == pytest.approx(theirs, rel=1e-6)


def test_local_kmeans_of_fewer_different_rows_than_clusters():
    X = np.repeat([[0.0], [1.0]], 5, axis=0)
    centroids = kmeans(X, 4, np.random.default_rng(0), n_init=2)
    assert centroids.shape == (4, 1)
    assert set(np.unique(centroids)) <= {0.0, 1.0}


def test_fkm_reaches_pooled_quality_and_converges(blobs):
    X, clients = blobs
    model = FKM(3, n_init=3, random_state=0).fit(X, clients=clients)
    assert model.stop_reason_ == "tol"
    assert model.score_per_sample_ == pytest.approx(
        PooledKMeans(3, n_init=5, random_state=0).fit(X).score_per_sample_, rel=0.01
    )


def test_fkm_drops_clusters_a_client_does_not_have():
    """A cluster that is empty at first could get points in a later local step, but it is dropped."""
    X = np.array([[0.0], [4.0], [10.0]])
    centroids = np.array([[7.0], [13.1]])
    keep = local_update(X, centroids, max_local=5, tol_local=0, empty_clusters="keep")
    drop = local_update(X, centroids, max_local=5, tol_local=0, empty_clusters="drop")
    np.testing.assert_array_equal(keep.last_counts, [2, 1])
    np.testing.assert_array_equal(drop.last_counts, [3, 0])
    # FKM asks its clients to drop empty clusters, so the far point is never a centroid.
    policy = SitePolicy(min_cluster_size=1)
    federation = InProcess([Site("a", X, policy=policy)])
    everybody = federation.clients
    start = State.start(centroids)
    target = run(federation, fkm_target(start, everybody, everybody, max_local=5, tol_local=0.0)).d
    assert np.isclose(target, 14 / 3).any()


def test_fkm_starts_with_one_lloyd_step_from_rows():
    X = np.random.default_rng(0).normal(size=(60, 2))
    site = Site("a", X, policy=SitePolicy(min_cluster_size=1))
    sent = site.answer(LocalClusters(4, "k-means", n_init=1, max_iter=1, seed=5)).centroids
    rows = kmeans_plusplus(X, 4, site.generator(5))
    sums, counts = cluster_sums(X, assign(X, rows), 4)
    np.testing.assert_allclose(sent, sums / counts[:, None])


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_every_algorithm_by_name(blobs, name):
    X, clients = blobs
    # As published, k-FED is for clients that see few of the clusters; here all see all three.
    options = {"n_local_clusters": 3} if name == "kfed-published" else {}
    model = make(name, n_clusters=3, random_state=0, **options).fit(X, clients=clients)
    assert model.score_per_sample_ < 1.2
    assert model.score_per_sample_ == pytest.approx(score_per_sample(X, model.cluster_centers_))


def test_errors_on_unknown_names_and_parameters_list_the_valid_ones():
    with pytest.raises(ParameterError, match="dwf, ewf"):
        make("dfw")
    with pytest.raises(ParameterError, match=r"momentum cannot be set for 'kfed'.*n_init_local"):
        make("kfed", momentum=0.5)
    with pytest.raises(ParameterError, match="weighting cannot be set for 'ewf'"):
        make("ewf", weighting="dynamic")


def test_relocating_empty_clusters_changes_the_round():
    """The paper's example: the client of the third group is absent."""
    rng = np.random.default_rng(0)
    groups = [rng.normal(centre, 0.3, size=(20, 2)) for centre in ([0, 0], [6, 0], [3, 6])]
    start = np.array([[0.0, 0.0], [6.0, 0.0], [3.0, 6.0]])
    present = InProcess([Site("a", groups[0]), Site("b", groups[1])])
    third = {}
    for empty in ("keep", "relocate"):
        for weighting in ("equal", "dynamic"):
            model = FederatedKMeans.paper(
                3, weighting=weighting, empty_clusters=empty, init=start, learning_rate=1.0, momentum=0.0,
                max_rounds=1,
            )  # fmt: skip
            model.fit_federation(present)
            third[empty, weighting] = model.cluster_centers_[2]
    np.testing.assert_array_equal(third["keep", "equal"], [3.0, 6.0])
    np.testing.assert_array_equal(third["keep", "dynamic"], [3.0, 6.0])
    assert np.linalg.norm(third["relocate", "equal"] - [3.0, 6.0]) > 3


def test_fkm_can_start_afresh_in_every_round(blobs):
    """As the authors of DWF k-means run it: no stop, and the same seed gives the same result."""
    X, clients = blobs
    settings = {"server_init": "k-means++", "tol": 0, "patience": None, "max_rounds": 12}
    model = FKM(3, random_state=0, **settings).fit(X, clients=clients)
    assert (model.n_iter_, model.stop_reason_) == (12, "max_rounds")
    again = FKM(3, random_state=0, **settings).fit(X, clients=clients)
    np.testing.assert_array_equal(model.cluster_centers_, again.cluster_centers_)
    # On three clear groups it finds the centroids of the other way, in another order in each round.
    other = FKM(3, random_state=0).fit(X, clients=clients)
    np.testing.assert_allclose(
        np.sort(model.cluster_centers_, axis=0), np.sort(other.cluster_centers_, axis=0), atol=1e-6
    )
    assert model.history_.movement.max() > 1


def test_fkm_refuses_an_unknown_start_of_the_server(blobs):
    X, clients = blobs
    with pytest.raises(ParameterError, match=r"server_init must be one of k-means\+\+, previous"):
        FKM(3, server_init="random").fit(X, clients=clients)
