"""Base class of the estimators: fitting on arrays or on a federation, and the methods after a fit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
from joblib import effective_n_jobs
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from fedkmeans._utils.checks import check_choice, check_integer
from fedkmeans._utils.dataframes import numeric_frame, ordered_array
from fedkmeans._utils.seeding import as_seed
from fedkmeans._utils.typing import ClientId, FloatArray, IntArray
from fedkmeans.algorithms import fit
from fedkmeans.algorithms.fit import Fitted, Schema
from fedkmeans.algorithms.rounds import Observer, request_score
from fedkmeans.algorithms.state import RoundInfo, State
from fedkmeans.client.in_process import InProcess, split_rows
from fedkmeans.kernels import AUTO, KERNELS, Kernel, choose_kernel, find_kernel
from fedkmeans.kernels.reference.distances import distances
from fedkmeans.kernels.sparse import Table, as_table
from fedkmeans.protocol.exchange import Conversation, Federation, run, run_concurrently


@dataclass(eq=False, repr=False)
class Clusterer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """Base class of the estimators; a subclass adds parameters and defines the conversation.

    Dataclasses write the constructors; as scikit-learn requires, these only store the parameters.
    """

    n_clusters: int = 8
    _: KW_ONLY
    clients_per_round: int | None = None
    n_init: int = 1
    random_state: Any = None
    n_jobs: int | None = None
    kernel: str = AUTO

    @abstractmethod
    def _conversation(
        self, schema: Schema, clients: tuple[ClientId, ...], seed: int, observe: Observer
    ) -> Conversation[Fitted]:
        """Check the parameters and return the conversation that fits the model."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def check_parameters(self) -> None:
        """Raise if parameters are invalid; no data is needed."""
        check_integer("n_clusters", self.n_clusters)
        check_choice("kernel", self.kernel, (AUTO, *KERNELS))
        self._conversation(Schema(0, 0, None), (), 0, lambda state, info: None).close()

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, clients: Any = None) -> Self:
        """Fit on local data, split into one site per client.

        Parameters
        ----------
        X : array-like, frame or scipy sparse matrix of shape (n_samples, n_features)
            Numbers of any real dtype; no full copy in double precision is made. Sparse rows remain
            sparse (CSR; other formats are converted once).
        y : ignored
        sample_weight : array-like of shape (n_samples,) or None
        clients : array-like of shape (n_samples,) or None
            The client of each row, like `groups` in scikit-learn; None means one client.

        Returns
        -------
        self
        """
        frame = numeric_frame(X)
        # A frame is converted and sorted by client in one step: one copy instead of two.
        checks = {"skip_check_array": frame is not None, "ensure_all_finite": False}
        table = validate_data(self, X, accept_sparse="csr", dtype="numeric", **checks)
        if frame is None:
            table = as_table(table)
        n_rows = len(table)
        weight = _check_weight(sample_weight, n_rows, ensure_non_negative=True)
        names, starts, order = split_rows(n_rows, clients)
        if frame is not None:
            table = ordered_array(frame, order)
        elif order is not None:
            table = table[order]
        if weight is not None and order is not None:
            weight = weight[order]
        columns = getattr(self, "feature_names_in_", None)
        columns = None if columns is None else tuple(columns)
        federation = InProcess.from_sorted(
            table, names, starts, weight, columns, n_jobs=self.n_jobs, kernel=self.kernel
        )
        self.fit_federation(federation)
        self.labels_ = np.empty(n_rows, dtype=np.int32)
        self.labels_[slice(None) if order is None else order] = self._assign(table)
        return self

    def fit_federation(self, federation: Federation, on_round: Observer | None = None) -> Self:
        """Fit on sites, each with its own data.

        Parameters
        ----------
        federation : Federation
            For example ``InProcess([Site("a", X_a), Site("b", X_b)])``.
        on_round : callable or None
            Called with (State, RoundInfo) after each round, for example to report or save progress.

        Returns
        -------
        self
            On KeyboardInterrupt after the first round, the estimator is fitted with the best centroids
            so far, and the exception is raised again.
        """
        check_integer("n_clusters", self.n_clusters)
        seed = as_seed(self.random_state)
        schema = run(federation, fit.agree_on_schema(federation.clients, self.n_clusters))
        latest: dict[int, State] = {}
        history: list[RoundInfo] = []

        def observe(state: State, info: RoundInfo) -> None:
            latest[info.restart] = state
            history.append(info)
            if on_round is not None:
                on_round(state, info)

        conversation = self._conversation(schema, federation.clients, seed, observe)
        if isinstance(federation, InProcess) and hasattr(self, "max_local"):
            federation.expect(self.n_clusters, self.max_local)
        try:
            self._store(run(federation, conversation), history, schema, seed)
        except KeyboardInterrupt:
            if latest:
                best = run(federation, _best_so_far(latest, federation.clients))
                self._store(best, history, schema, seed)
            raise
        return self

    def _store(self, fitted: Fitted, history: list[RoundInfo], schema: Schema, seed: int) -> None:
        for name in ("labels_", "feature_names_in_"):  # from an earlier fit
            if hasattr(self, name):
                delattr(self, name)
        if schema.feature_names is not None:
            self.feature_names_in_ = np.array(schema.feature_names, dtype=object)
        self.n_features_in_ = schema.n_features
        self.client_sizes_ = dict(schema.sizes)
        self.seed_ = seed
        self.cluster_centers_ = np.array(fitted.centroids)  # a writable copy
        self.n_iter_ = fitted.n_rounds
        self.stop_reason_ = fitted.reason
        self.inertia_ = fitted.score.inertia
        self.score_per_sample_ = fitted.score.per_sample
        self.score_per_client_ = fitted.score.per_client
        self.best_restart_ = fitted.restart
        self.history_ = pd.DataFrame(
            {
                "restart": [info.restart for info in history],
                "round": [info.round for info in history],
                "movement": [info.movement for info in history],
                "participants": [len(info.answered) for info in history],
                "asked": [len(info.asked) for info in history],
                "estimate": [info.estimate for info in history],
                "score": [getattr(info.score, "per_sample", np.nan) for info in history],
                "score_per_client": [getattr(info.score, "per_client", np.nan) for info in history],
                "bytes_sent": [info.sent for info in history],
                "bytes_received": [info.received for info in history],
                "kernel": schema.kernel,
            }
        )

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)

    def _validated(self, X: Any) -> Table:
        check_is_fitted(self, "cluster_centers_")
        return as_table(validate_data(self, X, accept_sparse="csr", dtype="numeric", reset=False))

    def _assign(self, X: Table) -> IntArray:
        return self._kernel_for(X).assign(X, self.cluster_centers_, effective_n_jobs(self.n_jobs))

    def _kernel_for(self, X: Table) -> Kernel:
        return find_kernel(choose_kernel(self.kernel, 1, X.size))

    def predict(self, X: Any) -> IntArray:
        """Return the label of the nearest centroid for each row, shape (n_samples,)."""
        return self._assign(self._validated(X)).astype(np.int32)

    def transform(self, X: Any) -> FloatArray:
        """Return the distance of each row to each centroid, shape (n_samples, n_clusters)."""
        return distances(self._validated(X), self.cluster_centers_)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return minus the sum of squared distances to the nearest centroid, like scikit-learn's KMeans."""
        X = self._validated(X)
        weight = _check_weight(sample_weight, len(X))
        n_threads = effective_n_jobs(self.n_jobs)
        return -self._kernel_for(X).inertia(X, self.cluster_centers_, weight, n_threads)


def _check_weight(sample_weight: Any, n_rows: int, **checks: bool) -> Any:
    """Return the weights in double precision, or None if there are none."""
    if sample_weight is None:
        return None
    return _check_sample_weight(sample_weight, np.empty((n_rows, 0)), dtype=np.float64, **checks)


def _best_so_far(latest: dict[int, State], clients: tuple[str, ...]) -> Conversation[Fitted]:
    def score(restart: int, state: State) -> Conversation[Fitted]:
        found = yield from request_score(state.centroids, clients)
        return Fitted(state.centroids, state.round, "interrupted", found, restart)

    return fit.best_fit((yield from run_concurrently([score(*item) for item in latest.items()])))
