"""``fedkmeans report``."""

from __future__ import annotations

from pathlib import Path

from fedkmeans.cli import console
from fedkmeans.cli.outputs import check_new_file, writing
from fedkmeans.model import Model
from fedkmeans.study.page.run import write_run_report


def write_page(model: Path, out: Path, title: str | None, force: bool) -> None:
    """Write the page of a model and say where it is."""
    check_new_file(out, force)
    found = Model.load(model)
    with writing(out):
        write_run_report(found, out, title or model.resolve().stem)
    console.say(f"The page is {str(out)!r}; open it in a browser.")
