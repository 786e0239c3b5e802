"""What a run leaves on the server's disk: a journal, its progress, the model, and a wish to stop."""

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
    """A run's folder; see the properties for what is in it."""

    path: Path

    @property
    def journal(self) -> Path:
        """Every answer of the sites, so that the run can go on where it was."""
        return self.path / "journal"

    @property
    def model(self) -> Path:
        """The model, once there is one."""
        return self.path / "model"

    def make(self) -> None:
        """Make the folder, readable by its owner alone: a journal holds what each site sent."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self.path / _STOP).unlink(missing_ok=True)

    def say(self, status: str, **details: Any) -> None:
        """Write how the run stands: "running", "finished", "interrupted" or "failed"."""
        with atomic_path(self.path / _STATUS) as temporary:
            temporary.write_text(json.dumps({"status": status, **details}, indent=2) + "\n", encoding="utf-8")

    def status(self) -> dict[str, Any]:
        """How the run stands; an empty dict if it has not begun."""
        try:
            found: dict[str, Any] = json.loads((self.path / _STATUS).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        return found

    def ask_to_stop(self) -> None:
        """Wish that the run ends after its next round, with the best it has."""
        (self.path / _STOP).touch()

    @property
    def should_stop(self) -> bool:
        """Whether somebody wishes so."""
        return (self.path / _STOP).exists()

    def reporter(self, max_rounds: int | None, silent: Callable[[], dict[str, str]]) -> Callable[..., None]:
        """Return an observer that writes a line a round, and stops the run if that is wished for.

        Parameters
        ----------
        max_rounds : int or None
        silent : callable
            Who gave no answer in the latest exchange, and why.
        """
        self._end_line()

        def observe(state: State, info: RoundInfo) -> None:
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
            with (self.path / _PROGRESS).open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            if self.should_stop:
                raise KeyboardInterrupt

        return observe

    def _end_line(self) -> None:
        """End a line that was being written when the run broke off, so that the next one begins anew."""
        path = self.path / _PROGRESS
        if path.exists() and path.read_bytes()[-1:] not in (b"", b"\n"):
            with path.open("ab") as file:
                file.write(b"\n")

    def progress(self) -> Iterator[dict[str, Any]]:
        """Lines so far; one that is being written is left for the next time, a torn one for good."""
        path = self.path / _PROGRESS
        if not path.exists():
            return
        for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
            if line.endswith("\n"):
                with suppress(ValueError):
                    yield json.loads(line)
