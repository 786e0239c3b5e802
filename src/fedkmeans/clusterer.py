"""What all estimators share: fitting on arrays or a federation, and all that follows a fit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from fedkmeans import algorithms
from fedkmeans.algorithms import Fitted, Schema
from fedkmeans.clustering import inertia_of
from fedkmeans.conversation import Conversation, Federation, hold, together
from fedkmeans.federations.in_process import InProcess
from fedkmeans.lloyd import assign, squared_distances
from fedkmeans.parameters import check_integer
from fedkmeans.records import RoundInfo, State
from fedkmeans.rounds import Observer, request_score
from fedkmeans.seeding import as_seed
from fedkmeans.typing import DataArray, FloatArray, IntArray


class Clusterer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """Base of the estimators; a subclass holds parameters and names its conversation."""

    n_clusters: int
    random_state: Any
    n_jobs: int | None

    @abstractmethod
    def _conversation(
        self, schema: Schema, federation: Federation, observe: Observer
    ) -> Conversation[Fitted]:
        """Check the parameters and return the conversation that fits."""

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, clients: Any = None) -> Self:
        """Fit on rows that lie here, as if each client held its own.

        Parameters
        ----------
        X : array-like or frame of shape (n_samples, n_features)
            Numbers of any real dtype; not turned into double precision as a whole.
        y : ignored
        sample_weight : array-like of shape (n_samples,) or None
        clients : array-like of shape (n_samples,) or None
            Which client each row belongs to, like `groups` elsewhere; None means one client.

        Returns
        -------
        self
        """
        X = validate_data(self, X, dtype="numeric", ensure_all_finite=False)
        weight = None
        if sample_weight is not None:
            weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        names = getattr(self, "feature_names_in_", None)
        columns = None if names is None else tuple(names)
        federation = InProcess.from_arrays(X, clients, weight, columns, n_jobs=self.n_jobs)
        self.fit_federation(federation)
        self.labels_ = self._label(X)
        return self

    def fit_federation(self, federation: Federation, on_round: Observer | None = None) -> Self:
        """Fit on sites that hold their own data.

        Parameters
        ----------
        federation : Federation
            For instance ``InProcess([Site("a", X_a), Site("b", X_b)])``.
        on_round : callable or None
            Called with (State, RoundInfo) after each round, to watch or to save.

        Returns
        -------
        self
            When interrupted from the keyboard, what is finished is kept: the estimator is fitted
            with the best centroids so far, and KeyboardInterrupt is raised again.
        """
        check_integer("n_clusters", self.n_clusters)
        self.seed_ = as_seed(self.random_state)
        schema = hold(federation, algorithms.agree_on_schema(federation.clients, self.n_clusters))
        self.n_features_in_ = schema.n_features
        if schema.feature_names is not None:
            self.feature_names_in_ = np.array(schema.feature_names, dtype=object)
        elif hasattr(self, "feature_names_in_"):  # of an earlier fit
            del self.feature_names_in_
        latest: dict[int, State] = {}
        history: list[RoundInfo] = []

        def observe(state: State, info: RoundInfo) -> None:
            latest[info.restart] = state
            history.append(info)
            if on_round is not None:
                on_round(state, info)

        try:
            self._store(hold(federation, self._conversation(schema, federation, observe)), history)
        except KeyboardInterrupt:
            if latest:
                self._store(hold(federation, _best_so_far(latest, federation.clients)), history)
            raise
        return self

    def _store(self, fitted: Fitted, history: list[RoundInfo]) -> None:
        self.cluster_centers_ = fitted.centroids
        self.n_iter_ = fitted.n_rounds
        self.stop_reason_ = fitted.reason
        self.inertia_ = fitted.score.inertia
        self.score_per_sample_ = fitted.score.per_sample
        self.score_per_client_ = fitted.score.per_client
        self.best_restart_ = fitted.restart
        self.history_ = history_table(history)

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)

    def _validated(self, X: Any) -> DataArray:
        check_is_fitted(self, "cluster_centers_")
        return validate_data(self, X, dtype="numeric", reset=False)  # type: ignore[no-any-return]

    def _label(self, X: DataArray) -> Any:
        return assign(X, self.cluster_centers_).astype(np.int32)

    def predict(self, X: Any) -> IntArray:
        """Label of the nearest centroid for each row, shape (n_samples,)."""
        return self._label(self._validated(X))  # type: ignore[no-any-return]

    def transform(self, X: Any) -> FloatArray:
        """Distance of each row to each centroid, shape (n_samples, n_clusters)."""
        return np.sqrt(squared_distances(self._validated(X), self.cluster_centers_))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Minus the sum of squared distances to the nearest centroid, as in scikit-learn's KMeans."""
        X = self._validated(X)
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X, dtype=np.float64)
        return -inertia_of(X, self.cluster_centers_, sample_weight)


def _best_so_far(latest: dict[int, State], clients: tuple[str, ...]) -> Conversation[Fitted]:
    scores = yield from together([request_score(state.centroids, clients) for state in latest.values()])
    fits = [
        Fitted(state.centroids, state.round, "interrupted", score, restart)
        for (restart, state), score in zip(latest.items(), scores, strict=True)
    ]
    return min(fits, key=lambda fit: fit.score.per_sample)


def history_table(history: list[RoundInfo]) -> pd.DataFrame:
    """One row a round: restart, round, movement, participants, asked, and both scores where known."""
    return pd.DataFrame(
        {
            "restart": [info.restart for info in history],
            "round": [info.round for info in history],
            "movement": [info.movement for info in history],
            "participants": [len(info.answered) for info in history],
            "asked": [len(info.asked) for info in history],
            "score": [None if info.score is None else info.score.per_sample for info in history],
            "score_per_client": [None if info.score is None else info.score.per_client for info in history],
        }
    ).astype({"score": "float64", "score_per_client": "float64"})
