"""Weighting rules of the user's own, named in a plan as ``file.py:function``."""

from __future__ import annotations

import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedkmeans.errors import StudyError


def check_rule(parameters: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Replace a weighting ``file.py:function`` by the function; the file is looked for in `folder`.

    The file is run to find the function: a plan is as trusted as a program.
    """
    weighting = parameters.get("weighting")
    if not isinstance(weighting, str) or ":" not in weighting:
        return dict(parameters)
    file, _, name = weighting.rpartition(":")
    path = folder / file
    if not path.is_file():
        raise StudyError(f"weighting {weighting!r}: there is no file {str(path)!r}; check its name")
    try:
        found = runpy.run_path(str(path))
    except (Exception, SystemExit) as error:
        raise StudyError(
            f"weighting {weighting!r}: {str(path)!r} cannot be run: {error!r}; correct it"
        ) from error
    if not callable(found.get(name)):
        raise StudyError(f"weighting {weighting!r}: {str(path)!r} has no function {name!r}; check its name")
    return {**parameters, "weighting": found[name]}


def rule_text(parameters: Mapping[str, Any], folder: Path) -> str | None:
    """The text of the file that a weighting names, or None: with another text it is another rule."""
    weighting = parameters.get("weighting")
    if not isinstance(weighting, str) or ":" not in weighting:
        return None
    # Python may know the file by another encoding; here only a difference matters.
    return (folder / weighting.rpartition(":")[0]).read_text(encoding="utf-8", errors="backslashreplace")
