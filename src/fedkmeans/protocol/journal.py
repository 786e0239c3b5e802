"""Record the answers of a federation, so that an interrupted run can be resumed.

An algorithm is a function of the answers it is sent (`fedkmeans.protocol.exchange`): with the same answers
it computes the same result, to the last bit. So its state need not be saved. The journal contains the
answers; each is on disk before the algorithm sees it. A run that is started again with the same journal
replays them and asks the sites only after that.

If nobody answered the last request, it is sent again: a run that ended because no site was reachable can be
resumed later. If the run was interrupted between a request and its entry, the same request is sent again,
and the sites give the same answer.

>>> with Journalled(federation, "run.journal", "settings") as journalled:  # doctest: +SKIP
...     model.fit_federation(journalled)
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import numpy as np

from fedkmeans._utils.typing import ClientId
from fedkmeans.errors import JournalError, WireError
from fedkmeans.protocol.codec import decode, encode, to_bytes
from fedkmeans.protocol.declaration import Query, Reply
from fedkmeans.protocol.exchange import Clients, Federation, Total, new_id
from fedkmeans.protocol.field_types import register
from fedkmeans.protocol.journal_file import JournalFile

T = TypeVar("T")


@register
@dataclass(frozen=True, slots=True)
class Opening:
    """The first entry: which run this is, and what wrote it."""

    fingerprint: str
    versions: str


@register
@dataclass(frozen=True, slots=True)
class Present:
    """The members of the federation, written only when they change.

    `looks` counts how often the run has looked since the previous entry without a change.
    """

    clients: Clients
    looks: int


@register
@dataclass(frozen=True, slots=True)
class Drawn:
    """A new identifier."""

    name: str


@register
@dataclass(frozen=True, slots=True)
class Replies:
    """Replies of single clients, in the order in which the algorithm got them."""

    clients: Clients
    replies: tuple[Reply, ...]


@register
@dataclass(frozen=True, slots=True)
class Heard:
    """The answer to a request, and a digest of the request."""

    request: str
    answer: Replies | Total


_ENTRIES = (Present, Drawn, Heard)  # all but the first


class Journalled(AbstractContextManager["Journalled"]):
    """A federation that replays the answers of a journal and records all further answers.

    Parameters
    ----------
    inner : Federation
        The federation that is asked.
    path : str or path-like
        File of the journal, created if it does not exist.
    fingerprint : str
        The settings and the seed of the run, or a digest of them. A journal with another fingerprint is
        refused.

    Attributes
    ----------
    replayed : int
        Number of exchanges answered from the journal so far.
    """

    def __init__(self, inner: Federation, path: str | os.PathLike[str], fingerprint: str) -> None:
        self.inner = inner
        self.replayed = 0
        self._members: Clients | None = None
        self._looks = 0
        self._next = 0
        self._entry: Any = None  # the next one, if it has been read
        self._versions = _versions()
        self._file = JournalFile(path)
        try:
            self._open(fingerprint)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def replaying(self) -> bool:
        """Whether the next answer comes from the journal."""
        return self._next < len(self._file.places)

    @property
    def clients(self) -> Clients:
        """Names of all clients at this point of the run."""
        if _being_interrupted():
            return self.inner.clients
        if self.replaying:
            entry = self._look()
            if isinstance(entry, Present) and entry.looks == self._looks:
                self._members = self._replay(Present).clients
                return self._members
            if self._members is None:
                self._refuse()
        else:
            members = tuple(self.inner.clients)
            if members != self._members:
                self._members = self._append(Present(members, self._looks)).clients
                return self._members
        self._looks += 1
        return self._members

    def new_id(self) -> str:
        """Return a new identifier, or the recorded one."""
        if self.replaying:
            return self._replay(Drawn).name
        return self._append(Drawn(str(getattr(self.inner, "new_id", new_id)()))).name

    def ask(self, query: Query, clients: Sequence[ClientId]) -> Mapping[ClientId, Reply]:
        """Return the replies, new or recorded."""
        if _being_interrupted():
            return self.inner.ask(query, clients)
        found: Replies = self._exchange("ask", query, clients)
        return dict(zip(found.clients, found.replies, strict=True))

    def total(self, query: Query, clients: Sequence[ClientId]) -> Total:
        """Return the sum of the replies, new or recorded."""
        if _being_interrupted():
            return self.inner.total(query, clients)
        return self._exchange("total", query, clients)  # type: ignore[no-any-return]

    def _exchange(self, way: str, query: Query, clients: Sequence[ClientId]) -> Any:
        request = _digest(way, query, clients)
        if self.replaying:
            entry = self._replay(Heard)
            if entry.request != request:
                self._refuse()
            self.replayed += 1
            return entry.answer
        self._file.check()  # before anybody is asked
        answer = getattr(self.inner, way)(query, clients)
        if way == "ask":
            answer = Replies(tuple(answer), tuple(answer.values()))
        # The decoded entry is returned, so that a replayed run sees no difference.
        return self._append(Heard(request, answer)).answer

    def _open(self, fingerprint: str) -> None:
        if not self.replaying:
            self._append(Opening(fingerprint, self._versions))
            return
        opening = self._read(0, (Opening,))
        self._versions = opening.versions
        if opening.fingerprint != fingerprint:
            self._refuse("its fingerprint is another one")
        self._next = 1
        entry = self._read(-1, _ENTRIES) if self.replaying else None
        if isinstance(entry, Heard):
            answer = entry.answer
            if not (answer.clients if isinstance(answer, Replies) else answer.answered):  # nobody answered
                self._file.drop_last()

    def _append(self, entry: T) -> T:
        packed = encode(entry)
        self._file.append(packed)
        self._advance()
        return decode(packed, type(entry), max_header=None)  # type: ignore[no-any-return]

    def _replay(self, kind: type[T]) -> T:
        entry = self._look()
        if not isinstance(entry, kind):
            self._refuse()
        self._advance()
        return entry

    def _look(self) -> Any:
        """Return the next entry; it may be large, so it is read once."""
        if self._entry is None:
            self._entry = self._read(self._next, _ENTRIES)
        return self._entry

    def _advance(self) -> None:
        self._next += 1
        self._looks, self._entry = 0, None

    def _read(self, index: int, expected: tuple[type, ...]) -> Any:
        try:
            return decode(self._file.read(index), expected, max_header=None)
        except WireError as error:
            raise JournalError(
                f"{self._file.name} cannot be read: {error} Use the version of fedkmeans that wrote it, or "
                "remove the file to start the run again."
            ) from error

    def _refuse(self, why: str = "") -> NoReturn:
        why = why or f"at entry {self._next} this run goes another way"
        by = "" if self._versions == _versions() else f" (it was written by {self._versions})"
        raise JournalError(
            f"{self._file.name} belongs to a run with other settings{by}: {why}. Use the settings and the "
            "random_state (a number) with which it was begun, or remove the file to start the run again."
        )


def _versions() -> str:
    from fedkmeans import __version__  # here, as the package itself may import this module

    return f"fedkmeans {__version__}, numpy {np.__version__}"


def _digest(way: str, query: Query, clients: Sequence[ClientId]) -> str:
    digest = hashlib.sha256(json.dumps([way, list(clients)]).encode())
    digest.update(to_bytes(encode(query)))
    return digest.hexdigest()[:32]


def _being_interrupted() -> bool:
    """Whether a KeyboardInterrupt is handled: the score that is then asked for is no part of the run."""
    return isinstance(sys.exc_info()[1], KeyboardInterrupt)
