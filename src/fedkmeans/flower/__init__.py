"""A federation between organisations on Flower: its two apps, and what stands on disk at either side.

`server_app` and `client_app` are what Flower runs. `folder` is the server's side of a federation on disk,
`site_folder` a site's; `services` starts Flower's programs. Needs the extra ``flower``.
"""
