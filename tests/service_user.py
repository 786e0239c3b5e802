"""Another user than the one who installed the package: no home, and an installation that can only be read."""

import os
import shutil
import stat
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import fedkmeans

# Not listed on the machine, like the users of containers.
NUMBER = 54321
# Tests that run as root switch to this user. They keep one capability of root, to read all files, because
# Python may be installed where only root can read.
_BECOME = (
    "setpriv",
    *(f"--{what}={NUMBER}" for what in ("reuid", "regid")),
    "--clear-groups",
    *(f"--{what}=-all,+dac_read_search" for what in ("inh-caps", "ambient-caps", "bounding-set")),
)


@contextmanager
def service_user():
    """Such a user, with temporary folders; the test is skipped if no other user is possible."""
    # Not pytest's folder, which other users cannot read.
    with TemporaryDirectory(prefix="service-") as folder:
        Path(folder).chmod(0o755)
        yield ServiceUser(Path(folder))


class ServiceUser:
    """Runs Python as such a user, in its own folder."""

    def __init__(self, folder):
        self.home, self.temporary, installed = (folder / name for name in ("work", "tmp", "installed"))
        for place in (self.home, self.temporary):
            place.mkdir()
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(Path(fedkmeans.__file__).parent, installed / "fedkmeans", ignore=ignored)
        for path in (installed, *installed.rglob("*")):
            path.chmod(path.stat().st_mode & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))
        self.temporary.chmod(0o1777)
        self.become = ()
        if os.geteuid() == 0:
            if shutil.which(_BECOME[0]) is None:
                pytest.skip(f"no other user can be tried here: there is no {_BECOME[0]}")
            self.become = _BECOME
            os.chown(self.home, NUMBER, NUMBER)
        self.environment = {
            "PATH": os.environ["PATH"],
            "TMPDIR": str(self.temporary),
            "PYTHONPATH": str(installed),
            # A user of this machine who runs the tests has a home; here one that is not writable.
            **({} if self.become else {"HOME": str(installed)}),
        }
        tried = self.run("-c", "import fedkmeans, os; print(os.access(fedkmeans.__path__[0], os.W_OK))")
        if tried.stdout.strip() != "False":
            pytest.skip(f"no other user can be tried here: {tried.stderr.strip()[-200:]}")

    def command(self, *arguments):
        return [*self.become, sys.executable, *map(str, arguments)]

    def run(self, *arguments):
        return subprocess.run(
            self.command(*arguments),
            cwd=self.home,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def cache(self):
        return self.temporary / f"fedkmeans-cache-{NUMBER if self.become else os.geteuid()}"
