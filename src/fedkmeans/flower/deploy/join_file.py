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


@dataclass(frozen=True, slots=True)
class JoinFile:
    """The content of a join file.

    Attributes
    ----------
    federation, site : str
        Names.
    server : str
        Host and port.
    columns : tuple of str
        Columns of all sites, in this order; empty if the federation does not define them.
    authority : str
        Certificate, in PEM, of the authority that signs the server's certificate.
    key : str
        The site's private key; empty if the site created its own, which the server never sees.
    """

    federation: str
    site: str
    server: str
    columns: tuple[str, ...]
    authority: str
    key: str = field(default="", repr=False)

    def write(self) -> str:
        """Return the text of the file."""
        return (
            f"# Join file of site {self.site!r}. It is as secret as a password: hand it over safely, "
            "and keep\n"
            "# no copy. To join: fedkmeans site join THIS_FILE --data FILE\n"
            + to_toml({"format": FORMAT, **asdict(self)})
        )

    @classmethod
    def read(cls, path: Path) -> JoinFile:
        """Read a join file; raises `ParameterError` for anything else."""
        try:
            found: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ParameterError(
                f"join file {str(path)!r} cannot be read: {error.strerror}; check the path"
            ) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ParameterError(f"{str(path)!r} is no join file: {error}; ask for it again") from None
        if found.get("format") != FORMAT:
            raise ParameterError(
                f"{str(path)!r} is no join file of format {FORMAT}; ask for one made with your "
                "version of fedkmeans"
            )
        texts = {name: found.get(name) for name in ("federation", "site", "server", "authority", "key")}
        columns = found.get("columns")
        for name, text in texts.items():
            if not isinstance(text, str) or (not text and name != "key"):
                raise ParameterError(f"{str(path)!r} has no {name}; ask for the join file again")
        if not isinstance(columns, list) or not all(isinstance(column, str) for column in columns):
            raise ParameterError(f"{str(path)!r} has no list of columns; ask for the join file again")
        join = cls(columns=tuple(columns), **{name: str(text) for name, text in texts.items()})
        host, _, port = join.server.rpartition(":")
        if not host or not port.isdecimal():
            raise ParameterError(f"{str(path)!r}: server must be HOST:PORT; ask for the join file again")
        check_certificate(join.authority.encode(), f"authority of {str(path)!r}")
        if join.key:
            check_site_private(join.key.encode(), f"key of {str(path)!r}")
        return join
