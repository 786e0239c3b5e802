"""``fedkmeans evaluate``."""

from __future__ import annotations

from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np

from fedkmeans._utils.typing import DataArray, IntArray
from fedkmeans.cli import console
from fedkmeans.cli.inputs import read_for_model
from fedkmeans.cli.source import Source
from fedkmeans.cli.words import count
from fedkmeans.data import ClientTable
from fedkmeans.kernels.reference.lloyd import inertia_per_cluster
from fedkmeans.metrics import external_metrics
from fedkmeans.model import Model
from fedkmeans.protocol.messages import ScoreTotals

_TITLES = {
    "accuracy": "accuracy",
    "v_measure": "v-measure",
    "homogeneity": "homogeneity",
    "completeness": "completeness",
    "adjusted_rand": "adjusted Rand index",
}


def run_evaluate(model_path: Path, source: Source, as_json: bool) -> None:
    """Score a model on the rows of all clients."""
    model = Model.load(model_path)
    tables = read_for_model(model, source)
    found = assess(model, tables)
    if as_json:
        console.write_json(found)
        return
    sizes = ", ".join(f"{size:,}" for size in found["cluster_sizes"])
    rows = [
        ("rows", console.number(found["n_samples"])),
        ("score per sample", console.number(found["score_per_sample"])),
        ("score per client", f"{console.number(found['score_per_client'])}  (mean of the scores below)"),
        ("cluster sizes", sizes),
        *((_TITLES[name], f"{value:.4f}") for name, value in found.get("metrics", {}).items()),
    ]
    console.show_facts(f"{count(len(model.centroids), 'cluster')}, {count(len(tables), 'client')}", rows)
    members = [
        [client["name"], console.number(client["n_samples"]), console.number(client["score"])]
        for client in found["clients"]
    ]
    console.show_grid("By client", [("client", False), ("rows", True), ("score", True)], members)


def assess(model: Model, tables: list[ClientTable]) -> dict[str, Any]:
    """Work out scores, cluster sizes and, where all rows have true labels, how the clusters match them."""
    labels = [model.predict(table.X) for table in tables]
    scores = [_score(table.X, model, found) for table, found in zip(tables, labels, strict=True)]
    total = reduce(add, scores)
    everything = np.concatenate(labels)
    result: dict[str, Any] = {
        "n_samples": len(everything),
        "score_per_sample": total.per_sample,
        "score_per_client": total.per_client,
        "inertia": total.inertia,
        "cluster_sizes": np.bincount(everything, minlength=len(model.centroids)).tolist(),
        "clients": [
            {"name": table.name, "n_samples": len(table.X), "score": score.per_sample}
            for table, score in zip(tables, scores, strict=True)
        ],
    }
    true = [table.labels for table in tables if table.labels is not None]
    if len(true) == len(tables):
        result["metrics"] = external_metrics(_one_type(true), everything)
    return result


def _score(X: DataArray, model: Model, labels: IntArray) -> ScoreTotals:
    inertia = inertia_per_cluster(X, model.centroids, labels)
    return ScoreTotals.of(float(inertia.sum()), float(len(X)))


def _one_type(labels: list[DataArray]) -> DataArray:
    """Join the clients' labels (n,); numbers in one file and text in another become text."""
    joined = np.concatenate(labels)
    # scikit-learn takes labels that are 1.5 for a regression; as text they are what they are: names.
    return joined.astype(str) if joined.dtype.kind == "f" else joined
