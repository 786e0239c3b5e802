"""Four hospitals, four files: read them and cluster their rows without pooling them.

Each file becomes a site that answers the server's queries about its own rows. Here all four sites are in
one process. Over a network they would exchange the same messages. Run it with
``python examples/four_files.py``.
"""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from fedkmeans import FederatedKMeans, InProcess, Site
from fedkmeans.data import read_clients
from fedkmeans.metrics import external_metrics

# Three kinds of patient: age in years, systolic blood pressure in mmHg, stay in days.
KINDS = {"young": (28, 115, 2), "hypertensive": (55, 165, 4), "frail": (82, 130, 12)}
# The proportions differ between hospitals; the children's hospital has almost only one kind.
HOSPITALS = {
    "city": (200, 150, 100),
    "childrens": (180, 2, 0),
    "heart": (15, 220, 40),
    "rural": (30, 40, 160),
}


def write_files(folder, rng):
    """Write one CSV file per hospital, with column names and the true kind of each patient."""
    for hospital, counts in HOSPITALS.items():
        kinds = np.repeat(list(KINDS), counts)
        rows = np.array([KINDS[kind] for kind in kinds]) + rng.normal(
            scale=(9, 14, 0.6), size=(len(kinds), 3)
        )
        frame = pd.DataFrame(rows.round(1), columns=["age_years", "systolic_mmhg", "stay_days"])
        frame.assign(kind=kinds).to_csv(folder / f"{hospital}.csv", index=False)


def main():
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder), np.random.default_rng(0))
        tables = read_clients(folder, label="kind")
    sites = [Site(table.name, table.X, feature_names=table.feature_names) for table in tables]
    model = FederatedKMeans(3, init="k-means++", random_state=0).fit_federation(InProcess(sites))

    print(f"{model.n_iter_} rounds, stopped by {model.stop_reason_!r}; the centroids:")
    print(pd.DataFrame(model.cluster_centers_, columns=model.feature_names_in_).round(1).to_string(), "\n")
    report = []
    for table in tables:
        frame = pd.DataFrame(table.X, columns=table.feature_names)
        quality = external_metrics(table.labels, model.predict(frame))
        report.append({"hospital": table.name, "patients": len(frame), **quality})
    print(pd.DataFrame(report).set_index("hospital").round(3).to_string())


if __name__ == "__main__":
    main()
