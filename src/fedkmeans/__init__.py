"""Federated k-means: cluster data that may not be pooled."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedkmeans.client.in_process import InProcess
    from fedkmeans.client.site import Site, SitePolicy
    from fedkmeans.estimators import FKM, FederatedKMeans, KFed

__version__ = "0.1.0"

__all__ = ["FederatedKMeans", "KFed", "FKM", "InProcess", "Site", "SitePolicy", "__version__"]

# Imported when first used, so that ``fedkmeans --help`` does not wait for scikit-learn.
_HOMES = {
    "FederatedKMeans": "fedkmeans.estimators",
    "KFed": "fedkmeans.estimators",
    "FKM": "fedkmeans.estimators",
    "InProcess": "fedkmeans.client.in_process",
    "Site": "fedkmeans.client.site",
    "SitePolicy": "fedkmeans.client.site",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fedkmeans' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
