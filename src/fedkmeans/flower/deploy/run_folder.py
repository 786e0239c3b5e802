"""The folder of a run at the server: journal, progress, model, and a request to stop."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedkmeans.algorithms.state import RoundInfo, State
from fedkmeans.flower.deploy.files import write_private


class RunFolder:
    """The folder of a run, with the replies of all sites (`journal`), to resume it, and later its `model`."""

    def __init__(self, path: Path) -> None:
        self.path, self.journal, self.model = path, path / "journal", path / "model"
        self._status, self._stop = path / "status.json", path / "stop"
        self._progress = path / "progress.jsonl"

    def make(self) -> None:
        """Create the folder, readable only by its owner: the journal contains the replies of each site."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._stop.unlink(missing_ok=True)

    def say(self, status: str, **details: Any) -> None:
        """Write the status of the run: "running", "finished", "interrupted" or "failed"."""
        write_private(self._status, json.dumps({"status": status, **details}, indent=2) + "\n")

    def status(self) -> dict[str, Any]:
        """Return the status of the run; an empty dict if it has not started."""
        return dict(json.loads(self._status.read_text(encoding="utf-8"))) if self._status.exists() else {}

    def ask_to_stop(self) -> None:
        """Request that the run ends after its next round, with the best result so far."""
        self._stop.touch()

    def reporter(self, max_rounds: int | None, silent: Callable[[], dict[str, str]]) -> Callable[..., None]:
        """Return an observer that writes one line per round, and stops the run on request.

        Rounds that were reported before the run was resumed are skipped. `silent` returns the sites that
        did not answer in the latest exchange, with the reason.
        """
        path = self._progress
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
            if self._stop.exists():
                raise KeyboardInterrupt

        return observe

    def progress(self) -> Iterator[dict[str, Any]]:
        """Yield the lines so far, without incomplete and damaged ones."""
        text = self._progress.read_text(encoding="utf-8") if self._progress.exists() else ""
        for line in text.split("\n")[:-1]:
            with suppress(ValueError):
                yield json.loads(line)
