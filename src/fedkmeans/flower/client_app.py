"""The ClientApp: Flower calls it with a message, and a site answers."""

from __future__ import annotations

import logging
import os
import secrets
from pathlib import Path

from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp

from fedkmeans.errors import FederationError, FedKMeansError
from fedkmeans.flower.deploy import site_folder
from fedkmeans.flower.message import ACTION, read_content, write_content
from fedkmeans.flower.simulated import simulated_site
from fedkmeans.protocol.codec import decode, encode
from fedkmeans.protocol.declaration import Query
from fedkmeans.protocol.validation import check_query

log = logging.getLogger(__name__)
app = ClientApp()

# Keys of the node's configuration, and an environment variable that may replace the first.
FOLDER_KEY, PARTITION_KEY = "site-folder", "partition-id"
FOLDER_VARIABLE = "FEDKMEANS_SITE"

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
    folder = _folder(context)
    site = simulated_site(context) if folder is None else site_folder.open_site(folder)
    packed, exchange, client = read_content(message.content)
    if client not in ("", site.name):  # empty if the server does not know its sites yet
        raise FederationError(
            f"The server takes this site for {client!r}, and it is {site.name!r}. Use the join file that was "
            "made for this site."
        )
    query = decode(packed, Query)
    check_query(query, site.X.shape[1])
    reply = site.answer(query)
    if folder is not None:
        site_folder.keep(folder, site)
    salt = secrets.randbits(52) / 2**52
    return Message(write_content(encode(reply), exchange, site.name, salt=salt), reply_to=message)


def _folder(context: Context) -> Path | None:
    folder = context.node_config.get(FOLDER_KEY) or os.environ.get(FOLDER_VARIABLE)
    return Path(str(folder)) if folder else None
