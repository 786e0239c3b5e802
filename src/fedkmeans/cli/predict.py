"""``fedkmeans predict``."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from fedkmeans.cli import console
from fedkmeans.cli.inputs import read_for_model
from fedkmeans.cli.outputs import check_new_file, check_new_folder, writing
from fedkmeans.cli.source import Source
from fedkmeans.cli.words import count
from fedkmeans.data import atomic_folder, labels_by_file, write_labels
from fedkmeans.data.clients import unique_names
from fedkmeans.data.labels import WRITERS
from fedkmeans.model import Model

_OTHERWISE = ".csv"  # for formats that can be read but not written


def run_predict(model_path: Path, source: Source, out: Path, column: str, force: bool) -> None:
    """Label the rows of all files, and write them beside the rows."""
    model = Model.load(model_path)
    one_file = len(source.paths) == 1 and not source.paths[0].is_dir()
    if one_file:
        check_new_file(out, force)
    else:
        check_new_folder(out)
    tables = read_for_model(model, source)
    labels = [model.predict(table.X) for table in tables]
    found = labels_by_file(tables, labels)
    with writing(out):
        if one_file:
            ((path, (values, kept)),) = found.items()
            write_labels(path, values, out, column, kept, source.header)
        else:
            names = output_names(list(found))
            with atomic_folder(out) as folder:
                for name, (path, (values, kept)) in zip(names, found.items(), strict=True):
                    write_labels(path, values, folder / name, column, kept, source.header)
    sizes = Counter(int(label) for values in labels for label in values)
    rows = [(f"cluster {i}", f"{sizes[i]:,}") for i in range(len(model.centroids))]
    console.show_facts(f"{count(sum(sizes.values()), 'row')} labelled", rows)
    files = "" if one_file else f", {count(len(found), 'file')}"
    console.say(f"The labels are in {str(out)!r}{files}, column {column!r}.")


def output_names(paths: list[Path]) -> list[str]:
    """Name each output as its input; a folder before it where two would be the same."""
    suffixes = [path.suffix.lower() if path.suffix.lower() in WRITERS else _OTHERWISE for path in paths]
    stems = [name.replace("/", "-").replace("\\", "-") for name in unique_names(paths)]
    return [
        # a.txt and a.data are told apart by their suffix, which is then part of the name
        (stem if stem.lower().endswith(suffix) else stem + suffix)
        for stem, suffix in zip(stems, suffixes, strict=True)
    ]
