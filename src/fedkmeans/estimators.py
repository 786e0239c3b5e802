"""Estimators with the scikit-learn interface: their parameters and the conversations that fit them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from fedkmeans._utils.checks import check_choice, check_integer, check_real
from fedkmeans._utils.typing import ClientId, DataArray
from fedkmeans.algorithms import fit
from fedkmeans.algorithms.fit import Fitted, MemorySetting, Schema, find_memory
from fedkmeans.algorithms.fkm import SERVER_INITS, fkm_target
from fedkmeans.algorithms.initialization import ALL, AUTO, most_used
from fedkmeans.algorithms.kfed import VARIANTS
from fedkmeans.algorithms.rounds import Observer, RoundConfig
from fedkmeans.algorithms.stopping import Stopping
from fedkmeans.algorithms.wf_kmeans import LocalWork
from fedkmeans.base import Clusterer
from fedkmeans.errors import FedKMeansWarning, Setting
from fedkmeans.kernels.base import WeightingRule
from fedkmeans.protocol.exchange import Conversation

# The settings of the paper, where they differ from the defaults below.
PAPER: dict[str, Any] = {
    "participation": "random",
    "memory": None,
    "init_clients": ALL,
    "init_rows": ALL,
    "look_ahead": 0.0,
    "max_local": 5,
    "learning_rate": 0.01,
    "momentum": 0.8,
    "tol_score": 0.0,
    "patience": 300,
    "min_rounds": 16,
    "max_rounds": 10_000,
}


@dataclass(eq=False, repr=False, kw_only=True)
class FederatedKMeans(Clusterer):
    """Weighted federated k-means with memory: k-means on the rows of all clients, without moving them.

    The defaults are intended for real federations: the latest statistics of every client count,
    clients take turns if only some are asked per round, and the run stops when the score is stable.
    The page *Memory* of the documentation describes the study behind them. The algorithms of the paper
    (Holzer, Jacob & Kavane: DWF, EWF, other weightings) are available as `FederatedKMeans.paper(...)`.

    Parameters
    ----------
    n_clusters : int, default=8
        The number of clusters, k.
    weighting : str or callable, default="dynamic"
        Rule for the weight of a local centroid: "dynamic" (DWF), "equal" (EWF), "by_size" (FedAvg),
        "by_compactness", or a function of a `LocalSummary` that returns one weight per cluster.
        "equal" and "by_size" cannot be combined with memory.
    clients_per_round : int or None, default=None
        Number of clients asked in each round; None means all.
    participation : {"turns", "random"}, default="turns"
        Whether clients take turns in random order or are drawn independently in each round (the paper).
    memory : {"server", "client"} or float or None, default="server"
        What a round uses in addition to its replies. "server", "client": the latest statistics of
        every client, stored by the server, or by the client, which sends deltas; both give the same
        results as long as no client leaves or loses its state. A number γ in (0, 1): the totals of
        earlier rounds, multiplied by γ in each round. None: nothing (the paper).
    look_ahead : float, default=0.75
        With memory "server" or "client", the part of the age of the statistics for which a round is
        corrected, from 0 (not at all) to 1. It has no effect if all clients are asked in each round, and
        with momentum.
    max_local : int, default=1
        Maximum number of local steps per round. With memory, one step leads to the fixed points of
        pooled k-means; more steps give biased results if the data of clients differ.
    learning_rate : float, default=1.0
        η in (0, 1], the step size of the server towards the aggregated centroids.
    momentum : float, default=0.0
        μ in [0, 1), the fraction of the last movement that is added to the next one.
    init : str or array of shape (k, m), default="kfed"
        Initialization: "kfed", "random" (in the bounding box of all data), "client_random",
        "k-means++" (across clients), or an array of initial centroids.
    init_clients : int, "auto" or "all", default="auto"
        Maximum number of clients that take part in the initialization. They are drawn at random for each
        restart, with probability proportional to their number of rows. "auto" means the larger of 500
        and 10 per cluster.
    init_rows : int, "auto" or "all", default="auto"
        Maximum number of rows of a client that init="kfed" clusters. A client with more rows draws a
        sample, and only its last step uses all rows. "auto" means the larger of 10,000 and 100 per
        cluster. With few rows per cluster the start may be poor; at least k times the site's least
        cluster size are used.
    n_init : int, default=1
        Number of restarts; the result with the lowest federated score per sample is kept.
    empty_clusters : {"keep", "relocate"}, default="keep"
        What a client does with a cluster that contains none of its points.
    tol, tol_local : float, default=1e-8
        Stop when the centroids move less than this, at the server and at a client.
    tol_score : float, default=1e-3
        Stop when the server predicts that the score will change by at most this fraction; 0 means
        never. Without memory it has no effect, because the server does not know the score.
    patience : int or None, default=None
        Stop when the oldest of this many latest movements is the smallest of them; None means never.
        Movements of the first `min_rounds` rounds do not count.
    min_rounds, max_rounds : int, default=1 and 1000
        Minimum and maximum number of rounds.
    score_every : int, default=0
        Number of rounds between requests for the federated score, for `history_`; 0 means never.
    random_state : int or RandomState or Generator or None, default=None
        The seed; the same seed gives the same result.
    n_jobs : int or None, default=None
        Number of threads when fitting on arrays; None means one, -1 means one per core.
    kernel : {"auto", "numba", "numpy"}, default="auto"
        Kernel for the arithmetic when fitting on arrays: compiled code ("numba") or plain NumPy, which
        "auto" uses for small data. Both find the same clusters.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features)
    labels_ : ndarray of shape (n_samples,)
        Only set by `fit`: after `fit_federation` the rows are not available.
    inertia_ : float
        Sum of squared distances over all clients that replied.
    score_per_sample_, score_per_client_ : float
        The federated score as a mean over rows, and as an unweighted mean over clients (the paper).
    n_iter_ : int
        Number of rounds of the best restart, `best_restart_`.
    stop_reason_ : str
        "tol", "tol_score", "patience", "max_rounds" or "interrupted".
    history_ : pandas.DataFrame
        One row per round: restart, round, movement, participants (clients that replied), asked, estimate
        (of the score, by the server), score and score_per_client (if requested), bytes_sent and
        bytes_received (over all clients, without scoring), kernel (of the clients).
    seed_ : int
        The integer seed derived from `random_state`; use it to repeat the run.
    n_features_in_, feature_names_in_

    Examples
    --------
    >>> from fedkmeans import FederatedKMeans
    >>> from fedkmeans.data import load_synthetic, partition
    >>> import numpy as np
    >>> data = load_synthetic()
    >>> clients = partition("clustered", data.X, data.y, 100, np.random.default_rng(0))
    >>> model = FederatedKMeans(5, random_state=0).fit(data.X, clients=clients)
    >>> round(model.score_per_sample_, 3)
    0.074
    """

    weighting: str | WeightingRule = "dynamic"
    participation: str = "turns"
    memory: MemorySetting = "server"
    look_ahead: float = 0.75
    max_local: int = 1
    learning_rate: float = 1.0
    momentum: float = 0.0
    init: str | DataArray = "kfed"
    init_clients: int | str = AUTO
    init_rows: int | str = AUTO
    empty_clusters: str = "keep"
    tol: float = 1e-8
    tol_local: float = 1e-8
    tol_score: float = 1e-3
    patience: int | None = None
    min_rounds: int = 1
    max_rounds: int = 1000
    score_every: int = 0

    @classmethod
    def paper(cls, n_clusters: int = 8, **changes: Any) -> Self:
        """Make an estimator as in the paper: no memory, small steps with momentum, five local steps.

        `changes` are parameters that override `PAPER`.

        Examples
        --------
        >>> from fedkmeans import FederatedKMeans
        >>> FederatedKMeans.paper(3, weighting="equal").learning_rate
        0.01
        """
        return cls(n_clusters, **{**PAPER, **changes})

    def _conversation(
        self, schema: Schema, clients: tuple[ClientId, ...], seed: int, observe: Observer
    ) -> Conversation[Fitted]:
        plan = RoundConfig(
            seed=seed,
            clients_per_round=self.clients_per_round,
            learning_rate=self.learning_rate,
            momentum=self.momentum,
            participation=self.participation,
            stopping=Stopping(self.tol, self.patience, self.min_rounds, self.max_rounds, self.tol_score),
            score_every=self.score_every,
        )
        if self.memory is None and self.tol_score not in (0.0, FederatedKMeans.tol_score):
            why = " has no effect without memory, as the server then does not know the score."
            warnings.warn(FedKMeansWarning(Setting("tol_score", self.tol_score), why), stacklevel=2)
        work = LocalWork(self.weighting, self.max_local, self.tol_local, self.empty_clusters)
        look_ahead = check_real("look_ahead", self.look_ahead, low=0, high=1)
        if not isinstance(self.memory, str) and look_ahead not in (0.0, FederatedKMeans.look_ahead):
            why = " has no effect: it needs the latest statistics of every client, as with "
            message = Setting("look_ahead", look_ahead), why, Setting("memory", "server"), "."
            warnings.warn(FedKMeansWarning(*message), stacklevel=2)
        # Momentum looks ahead, too; both together may be unstable.
        target = find_memory(self.memory, work, 0.0 if self.momentum else look_ahead)
        n_init = check_integer("n_init", self.n_init)
        return fit.wf_kmeans(
            self.n_clusters,
            schema,
            clients,
            plan,
            target,
            self.init,
            most_used("init_clients", self.init_clients, self.n_clusters),
            most_used("init_rows", self.init_rows, self.n_clusters),
            n_init,
            observe,
        )


@dataclass(eq=False, repr=False, kw_only=True)
class KFed(Clusterer):
    """k-FED, one-shot federated clustering (Dennis, Li & Smith 2021).

    Parameters
    ----------
    n_clusters : int, default=8
        The number of clusters, k.
    variant : {"paper", "published"}, default="paper"
        The variant used in the DWF paper (k-means on both sides) or the published one (Awasthi-Sheffet
        at the clients, farthest-centre seeding at the server).
    n_local_clusters : int or None, default=None
        k' ≤ k, the number of clusters per client. None means k for variant "paper" and √k, rounded
        up, for "published", where the server adds centres of several clients until there are k.
    clients_per_round : int or None, default=None
        Number of clients sampled for the single round; None means all.
    n_init, n_init_local : int, default=1
        Number of restarts of k-means at the server and at the clients.
    max_iter : int, default=10000
        Maximum number of Lloyd steps of k-means at the server and at the clients.
    random_state, n_jobs, kernel
        As in :class:`FederatedKMeans`.

    Attributes
    ----------
    See :class:`FederatedKMeans`; `n_iter_` is 1 and `stop_reason_` "one shot".
    """

    variant: str = "paper"
    n_local_clusters: int | None = None
    n_init_local: int = 1
    max_iter: int = 10_000

    def _conversation(
        self, schema: Schema, clients: tuple[ClientId, ...], seed: int, observe: Observer
    ) -> Conversation[Fitted]:
        for name in ("n_local_clusters", "clients_per_round"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name))
        return fit.kfed(
            self.n_clusters,
            clients,
            seed,
            VARIANTS[check_choice("variant", self.variant, VARIANTS)],
            self.clients_per_round,
            self.n_local_clusters,
            check_integer("n_init", self.n_init),
            check_integer("n_init_local", self.n_init_local),
            check_integer("max_iter", self.max_iter),
            observe,
        )


@dataclass(eq=False, repr=False, kw_only=True)
class FKM(Clusterer):
    """Federated k-means of Garst & Reinders (2023): weighted k-means of local centroids.

    Parameters
    ----------
    n_clusters : int, default=8
        The number of clusters, k.
    clients_per_round : int or None, default=None
        Number of clients sampled in each round, including the initialization; None means all.
    server_init : {"previous", "k-means++"}, default="previous"
        Where k-means at the server starts in each round: at the previous global centroids, or afresh.
        The authors of DWF k-means, in their comparison, start afresh and use all of 1,000 rounds
        (`tol=0`, `patience=None`).
    max_local : int, default=5
    patience : int or None, default=300
    max_rounds : int, default=300
        As in :class:`FederatedKMeans`, with other defaults.
    n_init, tol, tol_local, min_rounds, score_every, random_state, n_jobs, kernel
        As in :class:`FederatedKMeans`.

    Attributes
    ----------
    See :class:`FederatedKMeans`.
    """

    server_init: str = "previous"
    max_local: int = 5
    tol: float = 1e-8
    tol_local: float = 1e-8
    patience: int | None = 300
    min_rounds: int = 1
    max_rounds: int = 300
    score_every: int = 0

    def _conversation(
        self, schema: Schema, clients: tuple[ClientId, ...], seed: int, observe: Observer
    ) -> Conversation[Fitted]:
        stopping = Stopping(self.tol, self.patience, self.min_rounds, self.max_rounds)
        # A learning rate of 1 and no momentum.
        plan = RoundConfig(seed, self.clients_per_round, 1.0, 0.0, stopping, self.score_every)
        work = LocalWork(max_local=self.max_local, tol_local=self.tol_local)
        target = partial(
            fkm_target,
            max_local=work.max_local,
            tol_local=work.tol_local,
            server_init=check_choice("server_init", self.server_init, SERVER_INITS),
            seed=seed,
        )
        return fit.fkm(self.n_clusters, clients, plan, target, check_integer("n_init", self.n_init), observe)
