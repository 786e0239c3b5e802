"""Federated k-means: cluster data that may not be pooled."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedkmeans.errors import (
    DataError,
    FederationError,
    FedKMeansError,
    FedKMeansWarning,
    ModelError,
    ParameterError,
    StudyError,
)

if TYPE_CHECKING:
    from fedkmeans.algorithms.rounds import Observer
    from fedkmeans.algorithms.state import RoundInfo, State
    from fedkmeans.client.in_process import InProcess
    from fedkmeans.client.site import Site, SitePolicy
    from fedkmeans.estimators import FKM, FederatedKMeans, KFed

    # Not in __all__, as they need the extra ``flower``.
    from fedkmeans.flower.transport import Flower as Flower
    from fedkmeans.flower.transport import WaitPolicy as WaitPolicy
    from fedkmeans.kernels.base import LocalSummary
    from fedkmeans.metrics import accuracy, external_metrics, score_per_sample
    from fedkmeans.model import Model
    from fedkmeans.registry import PooledKMeans, make

__version__ = "0.1.0"

# Imported when first used, so that ``fedkmeans --help`` does not wait for scikit-learn.
_EXPORTS = {
    "estimators": ("FederatedKMeans", "KFed", "FKM"),
    "registry": ("PooledKMeans", "make"),
    "client.in_process": ("InProcess",),
    "client.site": ("Site", "SitePolicy"),
    "flower.transport": ("Flower", "WaitPolicy"),
    "model": ("Model",),
    "metrics": ("accuracy", "external_metrics", "score_per_sample"),
    "kernels.base": ("LocalSummary",),
    "algorithms.rounds": ("Observer",),
    "algorithms.state": ("RoundInfo", "State"),
}
_MODULES = {name: f"fedkmeans.{module}" for module, names in _EXPORTS.items() for name in names}

__all__ = ["FederatedKMeans", "KFed", "FKM", "PooledKMeans", "make", "InProcess", "Site", "SitePolicy"]
__all__ += ["Model", "accuracy", "external_metrics", "score_per_sample"]
__all__ += ["LocalSummary", "Observer", "RoundInfo", "State", "__version__"]
__all__ += ["FedKMeansError", "DataError", "FederationError", "ModelError", "ParameterError", "StudyError"]
__all__ += ["FedKMeansWarning"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'fedkmeans' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
