"""Folders, keys and processes of the server and the sites of a federation."""
