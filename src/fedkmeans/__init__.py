"""Federated k-means: cluster data that may not be pooled."""

from fedkmeans.estimators import FKM, FederatedKMeans, KFed
from fedkmeans.federations.in_process import InProcess
from fedkmeans.site import Site, SitePolicy

__version__ = "0.1.0"

__all__ = ["FederatedKMeans", "KFed", "FKM", "InProcess", "Site", "SitePolicy", "__version__"]
