"""A federation between organisations on Flower.

Flower runs `server_app` and `client_app`, `transport` is the federation that algorithms use, and `deploy`
holds the folders, keys and processes of the server and the sites. Needs the extra ``flower``.
"""
