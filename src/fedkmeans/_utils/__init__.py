"""Helpers that know nothing of clustering."""
