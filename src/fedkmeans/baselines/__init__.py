"""Other published federated clusterings, to compare with."""
