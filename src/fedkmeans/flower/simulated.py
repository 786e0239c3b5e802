"""Sites in Flower's simulation: each reads one file of a folder."""

from __future__ import annotations

from pathlib import Path

from flwr.app import Context

from fedkmeans.client.site import Site
from fedkmeans.errors import ParameterError

DATA_KEY, PARTITION_KEY = "data", "partition-id"


def simulated_site(context: Context) -> Site:
    """Return the site of a node without a site folder.

    The number ``partition-id`` of the node's configuration selects a file of the folder ``data`` of the
    run's configuration.
    """
    data, number = context.run_config.get(DATA_KEY), context.node_config.get(PARTITION_KEY)
    if not data or not isinstance(number, int):
        raise ParameterError(
            "This node has no data. Start it with: fedkmeans site join, or in a simulation give a "
            "folder with one file per client, --run-config 'data=\"FOLDER\"'."
        )
    # Imported here, so that a site with its own rows does not load the readers of files.
    from fedkmeans.data import read_clients
    from fedkmeans.data.clients import data_files

    files = sorted(data_files([Path(str(data))]))
    if not 0 <= number < len(files):
        raise ParameterError(
            f"Node {number} finds no file of its own: {str(data)!r} has {len(files)}. Simulate as many nodes."
        )
    (table,) = read_clients([files[number]])
    return Site(table.name, table.X, feature_names=table.feature_names)
