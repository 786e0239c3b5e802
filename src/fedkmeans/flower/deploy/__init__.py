"""A federation on disk: folders, keys, services and the gate."""
