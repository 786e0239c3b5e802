"""The folder of a run at the server: journal, progress, model, and a request to stop."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedkmeans._utils.atomic_io import atomic_path
from fedkmeans.algorithms.state import RoundInfo, State

_PROGRESS, _STATUS, _STOP = "progress.jsonl", "status.json", "stop"


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of a run."""

    path: Path

    @property
    def journal(self) -> Path:
        """All replies of the sites, so that the run can be resumed."""
        return self.path / "journal"

    @property
    def model(self) -> Path:
        """The model, after the run."""
        return self.path / "model"

    def make(self) -> None:
        """Create the folder, readable only by its owner: the journal contains the replies of each site."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self.path / _STOP).unlink(missing_ok=True)

    def say(self, status: str, **details: Any) -> None:
        """Write the status of the run: "running", "finished", "interrupted" or "failed"."""
        with atomic_path(self.path / _STATUS) as temporary:
            temporary.write_text(json.dumps({"status": status, **details}, indent=2) + "\n", encoding="utf-8")

    def status(self) -> dict[str, Any]:
        """Return the status of the run; an empty dict if it has not started."""
        path = self.path / _STATUS
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}

    def ask_to_stop(self) -> None:
        """Request that the run ends after its next round, with the best result so far."""
        (self.path / _STOP).touch()

    @property
    def should_stop(self) -> bool:
        """Whether this was requested."""
        return (self.path / _STOP).exists()

    def reporter(self, max_rounds: int | None, silent: Callable[[], dict[str, str]]) -> Callable[..., None]:
        """Return an observer that writes one line per round, and stops the run on request.

        Rounds that were reported before the run was resumed are skipped.

        Parameters
        ----------
        max_rounds : int or None
        silent : callable
            Returns the sites that did not answer in the latest exchange, with the reason.
        """
        path = self.path / _PROGRESS
        told = {(line["restart"], line["round"]) for line in self.progress()}
        if path.exists() and path.read_bytes()[-1:] not in (b"", b"\n"):
            with path.open("ab") as file:  # the next line must not continue one that was interrupted
                file.write(b"\n")

        def observe(state: State, info: RoundInfo) -> None:
            if (info.restart, info.round) in told:
                return
            line = {
                "time": time.time(),
                "restart": info.restart,
                "round": info.round,
                "of": max_rounds,
                "movement": info.movement,
                "estimate": info.estimate if info.estimate == info.estimate else None,
                "answered": info.answered,
                "missing": {name: silent().get(name, "") for name in info.asked if name not in info.answered},
            }
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            if self.should_stop:
                raise KeyboardInterrupt

        return observe

    def progress(self) -> Iterator[dict[str, Any]]:
        """Yield the lines so far, without incomplete and damaged ones."""
        path = self.path / _PROGRESS
        if not path.exists():
            return
        for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
            if line.endswith("\n"):
                with suppress(ValueError):
                    yield json.loads(line)
