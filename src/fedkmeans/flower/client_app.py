"""The ClientApp: Flower calls it with a message, and a site answers."""

from __future__ import annotations

import logging
import secrets
from pathlib import Path

from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp

from fedkmeans.client.site import Site
from fedkmeans.errors import FederationError, FedKMeansError, ParameterError
from fedkmeans.flower.deploy import site_folder
from fedkmeans.flower.message import ACTION, read_content, write_content
from fedkmeans.protocol.codec import decode, encode
from fedkmeans.protocol.declaration import Query
from fedkmeans.protocol.validation import check_query

log = logging.getLogger(__name__)
app = ClientApp()

# Our code for errors; Flower's own codes are far smaller.
_REFUSED = 1000


@app.query(ACTION)
def answer(message: Message, context: Context) -> Message:
    """Let the site answer one query.

    The server learns only the type of an error. By itself, Flower sends the text of an exception, which
    may quote a value of the rows.
    """
    try:
        return _answer(message, context)
    except FedKMeansError as error:
        log.error("The query is not answered: %s", error)
        kind = type(error).__name__
    except Exception:
        log.exception("The query is not answered")
        kind = "an error"
    return Message(Error(code=_REFUSED, reason=f"{kind}; the site's own log says more"), reply_to=message)


def _answer(message: Message, context: Context) -> Message:
    folder = context.node_config.get("site-folder")
    site = site_folder.open_site(Path(str(folder))) if folder else _simulated_site(context)
    packed, exchange, client = read_content(message.content)
    if client not in ("", site.name):  # empty if the server does not know its sites yet
        raise FederationError(
            f"The server takes this site for {client!r}, and it is {site.name!r}. Use the join file that was "
            "made for this site."
        )
    query = decode(packed, Query)
    check_query(query, site.X.shape[1])
    reply = site.answer(query)
    if folder:
        site_folder.keep(Path(str(folder)), site)
    salt = secrets.randbits(52) / 2**52
    return Message(write_content(encode(reply), exchange, site.name, salt=salt), reply_to=message)


def _simulated_site(context: Context) -> Site:
    """Return the site of a node without a site folder, in Flower's simulation.

    The number ``partition-id`` of the node's configuration selects a file of the folder ``data`` of the
    run's configuration.
    """
    data, number = context.run_config.get("data"), context.node_config.get("partition-id")
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
