"""Commands that use a saved model: ``fedkmeans predict``, ``evaluate`` and ``report``."""

from contextlib import nullcontext
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np

from fedkmeans.cli import console
from fedkmeans.cli.console import count, number
from fedkmeans.cli.files import Source, check_new_file, check_new_folder, read_for_model, writing
from fedkmeans.data import ClientTable, atomic_folder, labels_by_file, write_labels
from fedkmeans.data.clients import unique_names
from fedkmeans.data.labels import WRITERS
from fedkmeans.kernels.reference.lloyd import inertia_per_cluster
from fedkmeans.metrics import external_metrics
from fedkmeans.model import Model
from fedkmeans.protocol.messages import ScoreTotals

_TITLES = {"v_measure": "v-measure", "adjusted_rand": "adjusted Rand index"}


def run_predict(
    *, model: Path, data: list[Path], out: Path, column: str, force: bool, source: dict[str, Any]
) -> None:
    """Label the rows of all files, and write the labels beside the rows."""
    files, loaded = Source.of(data, **source), Model.load(model)
    one_file = len(files.paths) == 1 and not files.paths[0].is_dir()
    if one_file:
        check_new_file(out, force)
    else:
        check_new_folder(out)
    tables = read_for_model(loaded, files)
    labels = [loaded.predict(table.X) for table in tables]
    found = labels_by_file(tables, labels)
    names = [out.name] if one_file else output_names(list(found))
    with writing(out), nullcontext(out.parent) if one_file else atomic_folder(out) as folder:
        for name, (path, (values, kept)) in zip(names, found.items(), strict=True):
            write_labels(path, values, folder / name, column, kept, files.header)
    sizes = np.bincount(np.concatenate(labels), minlength=len(loaded.centroids))
    rows = [(f"cluster {i}", f"{size:,}") for i, size in enumerate(sizes)]
    console.show_facts(f"{count(sizes.sum(), 'row')} labelled", rows)
    how_many = "" if one_file else f", {count(len(found), 'file')}"
    console.say(f"The labels are in {str(out)!r}{how_many}, column {column!r}.")


def output_names(paths: list[Path]) -> list[str]:
    """Name each output like its input; names that would be the same start with the folder."""
    # Formats that can be read but not written become CSV.
    suffixes = [path.suffix.lower() if path.suffix.lower() in WRITERS else ".csv" for path in paths]
    stems = [name.replace("/", "-").replace("\\", "-") for name in unique_names(paths)]
    return [
        # a.txt and a.data are told apart by their suffix, which is then part of the name
        (stem if stem.lower().endswith(suffix) else stem + suffix)
        for stem, suffix in zip(stems, suffixes, strict=True)
    ]


def run_evaluate(*, model: Path, data: list[Path], json: bool, source: dict[str, Any]) -> None:
    """Score a model on the rows of all clients."""
    loaded = Model.load(model)
    tables = read_for_model(loaded, Source.of(data, **source))
    found = assess(loaded, tables)
    if json:
        console.write_json(found)
        return
    sizes = ", ".join(f"{size:,}" for size in found["cluster_sizes"])
    rows = [
        ("rows", number(found["n_samples"])),
        ("score per sample", number(found["score_per_sample"])),
        ("score per client", f"{number(found['score_per_client'])}  (mean of the scores below)"),
        ("cluster sizes", sizes),
        *((_TITLES.get(name, name), f"{value:.4f}") for name, value in found.get("metrics", {}).items()),
    ]
    console.show_facts(f"{count(len(loaded.centroids), 'cluster')}, {count(len(tables), 'client')}", rows)
    members = [[c["name"], number(c["n_samples"]), number(c["score"])] for c in found["clients"]]
    console.show_grid("By client", ["client"], ["rows", "score"], members)


def assess(model: Model, tables: list[ClientTable]) -> dict[str, Any]:
    """Return scores, cluster sizes and, where all rows have true labels, the external metrics."""
    labels = [model.predict(table.X) for table in tables]
    scores = [
        ScoreTotals.of(float(inertia_per_cluster(table.X, model.centroids, found).sum()), float(len(table.X)))
        for table, found in zip(tables, labels, strict=True)
    ]
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
        # Numbers in one file and text in another become text. scikit-learn takes labels such as 1.5 for the
        # targets of a regression; as text they are names.
        joined = np.concatenate(true)
        names = joined.astype(str) if joined.dtype.kind == "f" else joined
        result["metrics"] = external_metrics(names, everything)
    return result


def write_page(*, model: Path, out: Path, title: str | None, force: bool) -> None:
    """Write the page of a model and say where it is."""
    from fedkmeans.study.page.run import write_run_report  # loads a library for figures

    check_new_file(out, force)
    found = Model.load(model)
    with writing(out):
        write_run_report(found, out, title or model.resolve().stem)
    console.say(f"The page is {str(out)!r}; open it in a browser.")
