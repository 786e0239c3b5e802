"""Sites in Flower's own simulation, or at nodes that were never joined: one file of a folder each."""

from __future__ import annotations

from pathlib import Path

from flwr.app import Context

from fedkmeans.client.site import Site
from fedkmeans.errors import ParameterError

DATA_KEY, PARTITION_KEY = "data", "partition-id"


def simulated_site(context: Context) -> Site:
    """Return the site of a node that has no folder of its own.

    Its number (``partition-id`` of the node's configuration) chooses a file of the folder ``data`` of
    the run's configuration.
    """
    data, number = context.run_config.get(DATA_KEY), context.node_config.get(PARTITION_KEY)
    if not data or not isinstance(number, int):
        raise ParameterError(
            "This node has no data. Start it with: fedkmeans site join, or in a simulation give a "
            "folder with "
            "one file a client, --run-config 'data=\"FOLDER\"'."
        )
    # Here, as a site with rows of its own should not have to load all that reads files.
    from fedkmeans.data import read_clients
    from fedkmeans.data.clients import data_files

    files = sorted(data_files([Path(str(data))]))
    if not 0 <= number < len(files):
        raise ParameterError(
            f"Node {number} finds no file of its own: {str(data)!r} has {len(files)}. Simulate as many nodes."
        )
    (table,) = read_clients([files[number]])
    return Site(table.name, table.X, feature_names=table.feature_names)
