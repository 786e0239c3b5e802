"""The program that a site runs in place of `flwr-clientapp`: our ClientApp, whatever app the server sends.

Flower sends the app of a run to the sites and runs it there. Anyone who controls the server could run any
code beside the rows. A site that joined with `fedkmeans site join` starts this program instead. It is
Flower's own program with one difference: it runs the installed app and does not unpack what was sent.
"""

from __future__ import annotations

import sys
from typing import Any

from flwr.supernode.cli import flwr_clientapp
from flwr.supernode.runtime import run_clientapp as runtime

# The functions with which Flower unpacks an app and finds out how to load it.
UNPACK, FIND = "install_from_fab", "get_load_client_app_fn"


def main() -> None:
    """Run Flower's program with our app."""
    missing = [name for name in (UNPACK, FIND) if not hasattr(runtime, name)]
    if missing:
        sys.exit(
            f"This version of Flower runs apps in another way ({', '.join(missing)} is not there), so that a "
            "site could not keep to its own. Install the version that fedkmeans asks for."
        )
    setattr(runtime, UNPACK, _leave_it)
    setattr(runtime, FIND, _find_ours)
    flwr_clientapp()


def _leave_it(*arguments: Any, **options: Any) -> None:
    """Ignore the app that the server sent."""


def _find_ours(*arguments: Any, **options: Any) -> Any:
    return _load_ours


def _load_ours(*arguments: Any) -> Any:
    from fedkmeans.flower.client_app import app  # here, so that Flower reports errors

    return app


if __name__ == "__main__":
    main()
