"""Join files: the server's address and certificate and, usually, the site's private key."""

from __future__ import annotations

import tomllib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fedkmeans.errors import ParameterError
from fedkmeans.flower.deploy.certificates import check_certificate, check_site_private
from fedkmeans.flower.deploy.files import to_toml

FORMAT = 1
_TEXTS = ("federation", "site", "server", "authority", "key")


@dataclass(frozen=True, slots=True)
class JoinFile:
    """The content of a join file."""

    federation: str
    site: str
    server: str  # host and port
    columns: tuple[str, ...]  # of all sites, in this order; empty if the federation does not define them
    authority: str  # certificate, in PEM, of the authority that signs the server's certificate
    # The site's private key; empty if the site created its own, which the server never sees.
    key: str = field(default="", repr=False)

    def write(self) -> str:
        """Return the text of the file."""
        return (
            f"# Join file of site {self.site!r}. It is as secret as a password: hand it over safely, "
            "and keep\n# no copy. To join: fedkmeans site join THIS_FILE --data FILE\n"
            + to_toml({"format": FORMAT, **asdict(self)})
        )

    @classmethod
    def read(cls, path: Path) -> JoinFile:
        """Read a join file; raises `ParameterError` for anything else."""
        where, remedy = repr(str(path)), "ask for the join file again"
        try:
            found: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ParameterError(
                f"join file {where} cannot be read: {error.strerror}; check the path"
            ) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ParameterError(f"{where} is no join file: {error}; ask for it again") from None
        if found.get("format") != FORMAT:
            raise ParameterError(
                f"{where} is no join file of format {FORMAT}; ask for one made with your version of fedkmeans"
            )
        texts: dict[str, Any] = {name: found.get(name) for name in _TEXTS}
        for name, text in texts.items():
            if not isinstance(text, str) or (not text and name != "key"):
                raise ParameterError(f"{where} has no {name}; {remedy}")
        columns = found.get("columns")
        if not isinstance(columns, list) or not all(isinstance(column, str) for column in columns):
            raise ParameterError(f"{where} has no list of columns; {remedy}")
        join = cls(columns=tuple(columns), **texts)
        host, _, port = join.server.rpartition(":")
        if not host or not port.isdecimal():
            raise ParameterError(f"{where}: server must be HOST:PORT; {remedy}")
        check_certificate(join.authority.encode(), f"authority of {where}")
        if join.key:
            check_site_private(join.key.encode(), f"key of {where}")
        return join
