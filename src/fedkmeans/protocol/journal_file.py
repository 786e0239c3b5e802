"""An append-only file of records, in which every entry is complete even after a crash."""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from pathlib import Path

from fedkmeans._utils.atomic_io import FULL, flush_folder
from fedkmeans.errors import JournalError, WireError
from fedkmeans.protocol.codec import MAGIC, PREFIX_SIZE, Packed, from_bytes, size_in_bytes, to_bytes

try:
    import fcntl
except ImportError:  # no such locks on Windows
    fcntl = None  # type: ignore[assignment]


class JournalFile:
    """Entries on disk, one after the other, in the form of `codec.to_bytes`.

    The file is created if it does not exist; its folder must exist. If the process died while it wrote the
    last entry, opening the file removes that entry. Only one process may have the file open.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.name = f"Journal {str(self.path)!r}"
        self.places: list[tuple[int, int]] = []  # offset and size of each entry in bytes
        self._usable = True
        try:
            self._file = self.path.open("a+b", buffering=0)
        except OSError as error:
            raise self._error(error, "Choose a file in an existing folder that you may write to.") from error
        try:
            self._lock()
            self._find_entries()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file, so that others can open it."""
        self._usable = False
        self._file.close()

    def _error(self, error: OSError, remedy: str) -> JournalError:
        return JournalError(f"{self.name}: {error.strerror or error}. {remedy}")

    def _lock(self) -> None:
        if fcntl is None:
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise JournalError(
                f"{self.name} is in use by another run. Wait until that run has ended, or give this one a "
                "journal of its own."
            ) from None
        except OSError:  # some network drives have no locks; the journal works there all the same
            return

    @property
    def _end(self) -> int:
        return sum(self.places[-1]) if self.places else 0

    def _find_entries(self) -> None:
        """Find all entries, and remove an incomplete one at the end."""
        size = os.fstat(self._file.fileno()).st_size
        if not MAGIC.startswith(self._bytes(0, len(MAGIC))):
            raise JournalError(
                f"{str(self.path)!r} is not a journal of fedkmeans, and is left as it is. Choose another "
                "file."
            )
        while (length := self._length_at(self._end, size)) is not None:
            self.places.append((self._end, length))
        if self._end == size:
            return
        if self._whole_entry_after(self._end, size):
            raise JournalError(
                f"{self.name} is damaged: entry {len(self.places)} cannot be read, but later ones can. "
                "Restore the file from a copy, or remove it to start the run again."
            )
        self._cut()

    def _cut(self) -> None:
        """Truncate the file after the last known entry."""
        self._file.truncate(self._end)
        os.fsync(self._file.fileno())

    def drop_last(self) -> None:
        """Remove the last entry."""
        self.places.pop()
        self._cut()

    def _length_at(self, place: int, size: int) -> int | None:
        """Return the size of the whole entry at `place` in a file of `size` bytes; None if there is none."""
        try:
            length = size_in_bytes(self._bytes(place, PREFIX_SIZE))
            if place + length > size:
                return None
            from_bytes(self._bytes(place, length))
        except WireError:
            return None
        return length

    def _whole_entry_after(self, place: int, size: int) -> bool:
        with mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            found = content.find(MAGIC, place + 1)
            while found >= 0:
                if self._length_at(found, size) is not None:
                    return True
                found = content.find(MAGIC, found + 1)
        return False

    def _bytes(self, place: int, length: int) -> bytes:
        """Return bytes of the file, fewer at its end."""
        self._file.seek(place)
        parts = []
        while length and (part := self._file.read(length)):
            parts.append(part)
            length -= len(part)
        return b"".join(parts)

    def read(self, index: int) -> Packed:
        """Return an entry."""
        return from_bytes(self._bytes(*self.places[index]))

    def check(self) -> None:
        """Raise an error if nothing more can be written."""
        if not self._usable:
            raise JournalError(f"{self.name} was closed, or could not be written to. Open it again to go on.")

    def append(self, packed: Packed) -> None:
        """Write an entry; it is on disk when this returns.

        If that fails, the file ends with the previous entry, and nothing more is written, because the
        journal would miss an answer.
        """
        self.check()
        data = to_bytes(packed)
        place = self._end
        self._usable = False
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[self._file.write(rest) or 0 :]
            os.fsync(self._file.fileno())
            if not place:
                flush_folder(self.path.resolve().parent)
        except BaseException as error:
            with suppress(OSError):
                self._file.truncate(place)
            if isinstance(error, OSError):
                remedy = "Make room on the disk" if error.errno in FULL else "Look after the disk"
                remedy += " and run again: all earlier answers are kept."
                raise self._error(error, remedy) from error
            raise
        self.places.append((place, len(data)))
        self._usable = True
