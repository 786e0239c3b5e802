"""Transports: each carries queries to sites and replies back."""

from fedkmeans.federations.in_process import InProcess

__all__ = ["InProcess"]
