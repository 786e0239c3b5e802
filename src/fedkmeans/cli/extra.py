"""Commands that need an optional part of the package say how to get it."""

from __future__ import annotations

from importlib.util import find_spec

from fedkmeans.errors import ParameterError


def need_flower() -> None:
    """Raise unless Flower is installed."""
    if find_spec("flwr") is None:
        raise ParameterError(
            "federations run on Flower, which is not installed; pip install 'fedkmeans[flower]'"
        )
