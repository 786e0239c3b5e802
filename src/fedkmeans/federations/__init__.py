"""Transports: each carries queries to sites and replies back.

`in_process` for sites of this process, `flower` for sites elsewhere. Imported one by one: who needs one
should not have to load the other.
"""
