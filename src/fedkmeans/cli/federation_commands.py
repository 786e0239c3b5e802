"""The commands ``fedkmeans federation`` and ``fedkmeans site``. Imports nothing heavy."""

from __future__ import annotations

from pathlib import Path

from fedkmeans.cli.commands import Command, help_text
from fedkmeans.cli.options import REQUIRED, SOURCE, TUNING, Option, argument

_FOLDER = argument("folder", Path, "DIR", "The federation's folder on the server.")
_SITES = Option("sites", list[str], "A site; may be repeated.", "NAME", REQUIRED, flags=("--site",))
_PUBLIC_KEY = Option("public_key", list[str], "Public key of a site that keeps its private one.", "SITE=FILE")

FEDERATION_HELP = help_text(
    "Cluster rows that stay at several organisations: the server's side.\n\n"
    "It runs on Flower and needs the extra: pip install 'fedkmeans\\[flower]'.",
    """
  fedkmeans federation new hospitals --host fed.example.org \\
      --site north --site south --site west
  fedkmeans federation serve hospitals       # leave it running
  fedkmeans federation status hospitals      # who is connected
  fedkmeans federation run hospitals -k 4    # the model is in hospitals/runs
""",
)
SITE_HELP = help_text(
    "Cluster rows that stay at several organisations: a site's side.",
    """
  fedkmeans site join north.toml --data patients.csv    # leave it running
""",
)

_NEW = Command(
    "new",
    "federation:make_federation",
    "Make a federation: certificates, settings, and a join file for each site.\n\n"
    "A join file holds the site's private key: hand it over safely, then delete it here. A site that wants "
    "its key to be known to nobody else makes one itself (ssh-keygen -t ecdsa -b 384) and sends the public "
    "half for --public-key.",
    """
  fedkmeans federation new hospitals --host fed.example.org \\
      --site north --site south
  fedkmeans federation new hospitals --host fed.example.org --site north \\
      --columns age,bmi,glucose      # what every site must have
  fedkmeans federation new banks --host 10.0.0.7 --port 443 \\
      --site a --site b --public-key b=b.pub
""",
    (
        argument("folder", Path, "DIR", "A new folder."),
        Option("host", str, "Name or address by which sites reach the server.", "HOST", REQUIRED),
        _SITES,
        Option("name", str, "Of the federation. Default: that of the folder.", "NAME"),
        Option("columns", list[str], "Columns that sites must have, in this order.", "NAMES"),
        Option("port", int, "Where sites connect.", "N", 9443),
        Option("internal_port", int, "For this machine only.", "N", 9444),
        _PUBLIC_KEY,
    ),
    needs_flower=True,
)

_SERVE = Command(
    "serve",
    "federation:serve_federation",
    "Run the server: Flower's SuperLink and executor, and the gate that sites connect to.\n\n"
    "Only --port need be open to sites; they can join and answer, and nothing else. Started again, "
    "it goes on where it was.",
    """
  fedkmeans federation serve hospitals
  fedkmeans federation serve hospitals --listen 127.0.0.1   # only here
""",
    (_FOLDER, Option("listen", str, "Address that sites may come to.", "ADDRESS", "0.0.0.0")),
    needs_flower=True,
)

_RUN = Command(
    "run",
    "federation_run:run_on_federation",
    "Cluster the rows of all sites; the model goes to DIR/runs/NAME/model.\n\n"
    "Each round is written down before the next one, so a run that was cut off goes on with --resume. Ctrl-C "
    "ends a run after its round, and the best centroids so far are the model.",
    """
  fedkmeans federation run hospitals -k 4
  fedkmeans federation run hospitals -k 4 --name spring --max-rounds 30
  fedkmeans federation run hospitals -k 4 --name spring --resume
  fedkmeans federation run hospitals -k 4 --min-answers 3 --timeout 120
""",
    (
        _FOLDER,
        "k",
        "algorithm",
        "seed",
        Option("name", str, "Of the run. Default: the date and time.", "NAME"),
        Option("resume", bool, "Go on with the run of that --name.", default=False),
        Option("timeout", float, "Seconds to wait for answers in a round.", "S", 600.0, group="waiting"),
        Option("min_answers", int, "Answers that a round must have.", "N", 1, group="waiting"),
        Option(
            "wait", float, "Seconds after which too few answers end the run.", "S", 3600.0, group="waiting"
        ),
        Option(
            "cool_down",
            float,
            "Seconds not to ask a site that did not answer in time.",
            "S",
            60.0,
            group="waiting",
        ),
        "quiet",
        *(name for name in TUNING if name not in ("n_jobs", "kernel")),
    ),
    needs_flower=True,
)

_STATUS = Command(
    "status",
    "federation:tell_status",
    "Say which sites are connected, and how the runs stand.",
    """
  fedkmeans federation status hospitals
  fedkmeans federation status hospitals --json
""",
    (_FOLDER, "json"),
    needs_flower=True,
)

_ADD = Command(
    "add",
    "federation:add_to_federation",
    "Add sites to a federation: a join file for each. Runs that are under way go on without them.",
    """
  fedkmeans federation add hospitals --site east
  fedkmeans federation add hospitals --site east --public-key east=east.pub
""",
    (_FOLDER, _SITES, _PUBLIC_KEY),
    needs_flower=True,
)

_REMOVE = Command(
    "remove",
    "federation:remove_from_federation",
    "Remove a site: its key is taken back, and it is cut off at once. Needs the server to be running.",
    "  fedkmeans federation remove hospitals --site east",
    (_FOLDER, Option("site", str, "The site.", "NAME", REQUIRED)),
    needs_flower=True,
)

_RENEW = Command(
    "renew",
    "federation:renew_certificate",
    "Make a new certificate for the server; sites need not do anything. Start the server again afterwards.",
    "  fedkmeans federation renew hospitals",
    (_FOLDER, Option("days", float, "For how long it is good.", "N", 365)),
    needs_flower=True,
)

_JOIN = Command(
    "join",
    "federation:join_federation",
    "Let a site take part: check its rows, connect, and answer questions about them.\n\n"
    "The rows stay here. The server learns how many there are, the columns' names, and what each "
    "question asks for: local centroids with their weights, and scores.",
    """
  fedkmeans site join north.toml --data patients.csv
  fedkmeans site join north.toml --data patients.csv --label diagnosis --check
  fedkmeans site join north.toml --data patients.parquet --key north-key
""",
    (
        argument("join_file", Path, "JOINFILE", "From who runs the federation."),
        Option("data", Path, "The site's rows.", "FILE", REQUIRED, group="source"),
        Option(
            "folder", Path, "What is kept between questions. Default: JOINFILE without its suffix.", "DIR"
        ),
        Option("key", Path, "The site's own private key, if it made one.", "FILE"),
        Option("check", bool, "Only look whether all is well.", default=False),
        Option("min_cluster_size", int, "Rows that stand behind each point sent for a start.", "N", 2),
        Option("port", int, "For this machine only.", "N", 9445),
        *(name for name in SOURCE if name != "client_column"),
    ),
    needs_flower=True,
)

FEDERATION_COMMANDS = (_NEW, _SERVE, _RUN, _STATUS, _ADD, _REMOVE, _RENEW)
SITE_COMMANDS = (_JOIN,)
