"""Federated k-means: cluster data that may not be pooled."""

__version__ = "0.1.0"
