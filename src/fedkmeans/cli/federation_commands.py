"""The commands ``fedkmeans federation`` and ``fedkmeans site``. Imports nothing heavy."""

from dataclasses import replace

from fedkmeans.cli.commands import Command
from fedkmeans.cli.options import SOURCE, TUNING, Option, shared

_FOLDER = {"DIR": "The federation's folder on the server."}
_SITES = {"--site NAME... = required": "A site; may be repeated."}
_PUBLIC_KEY = {"--public-key SITE=FILE...": "Public key of a site that keeps its private one."}

FEDERATION_HELP = """Cluster rows that stay at several organisations: the server's side.

It runs on Flower and needs the extra: pip install 'fedkmeans\\[flower]'.

  fedkmeans federation new hospitals --host fed.example.org \\
      --site north --site south --site west
  fedkmeans federation serve hospitals       # leave it running
  fedkmeans federation status hospitals      # who is connected
  fedkmeans federation run hospitals -k 4    # the model is in hospitals/runs"""
SITE_HELP = """Cluster rows that stay at several organisations: a site's side.

  fedkmeans site join north.toml --data patients.csv    # leave it running"""

FEDERATION_COMMANDS = {
    "new": Command(
        "federation:make_federation",
        """Make a federation: certificates, settings, and a join file for each site.

        A join file holds the site's private key: hand it over safely, then delete it here. A site that
        wants its key to be known to nobody else makes one itself (ssh-keygen -t ecdsa -b 384) and sends the
        public half for --public-key.

          fedkmeans federation new hospitals --host fed.example.org \\
              --site north --site south
          fedkmeans federation new hospitals --host fed.example.org --site north \\
              --columns age,bmi,glucose      # what every site must have
          fedkmeans federation new banks --host 10.0.0.7 --port 443 \\
              --site a --site b --public-key b=b.pub""",
        {
            "DIR": "A new folder.",
            "--host HOST = required": "Name or address by which sites reach the server.",
            **_SITES,
            "--name NAME": "Of the federation. Default: that of the folder.",
            "--columns NAMES...": "Columns that sites must have, in this order.",
            "--port N = 9443": "Where sites connect.",
            "--internal-port N = 9444": "For this machine only.",
            **_PUBLIC_KEY,
        },
    ),
    "serve": Command(
        "federation:serve_federation",
        """Run the server: Flower's SuperLink and executor, and the gate that sites connect to.

        Only --port need be open to sites; they can join and answer, and nothing else. Started again, it
        goes on where it was.

          fedkmeans federation serve hospitals
          fedkmeans federation serve hospitals --listen 127.0.0.1   # only here""",
        {**_FOLDER, "--listen ADDRESS = 0.0.0.0": "Address that sites may come to."},
    ),
    "run": Command(
        "federation_run:run_on_federation",
        """Cluster the rows of all sites; the model goes to DIR/runs/NAME/model.

        Each round is written down before the next one, so a run that was cut off goes on with --resume.
        Ctrl-C ends a run after its round, and the best centroids so far are the model.

          fedkmeans federation run hospitals -k 4
          fedkmeans federation run hospitals -k 4 --name spring --max-rounds 30
          fedkmeans federation run hospitals -k 4 --name spring --resume
          fedkmeans federation run hospitals -k 4 --min-answers 3 --timeout 120""",
        {
            **_FOLDER,
            **shared("k", "algorithm", "seed"),
            "--name NAME": "Of the run. Default: the date and time.",
            "--resume": "Go on with the run of that --name.",
            "--timeout S = 600": "Seconds to wait for answers in a round.",
            "--min-answers N = 1": "Answers that a round must have.",
            "--wait S = 3600": "Seconds after which too few answers end the run.",
            "--cool-down S = 60": "Seconds not to ask a site that did not answer in time.",
            **shared("quiet", *(name for name in TUNING if name not in ("n_jobs", "kernel"))),
        },
    ),
    "status": Command(
        "federation:tell_status",
        """Say which sites are connected, and how the runs stand.

          fedkmeans federation status hospitals
          fedkmeans federation status hospitals --json""",
        {**_FOLDER, **shared("json")},
    ),
    "add": Command(
        "federation:add_to_federation",
        """Add sites to a federation: a join file for each. Runs that are under way go on without them.

          fedkmeans federation add hospitals --site east
          fedkmeans federation add hospitals --site east --public-key east=east.pub""",
        {**_FOLDER, **_SITES, **_PUBLIC_KEY},
    ),
    "remove": Command(
        "federation:remove_from_federation",
        """Remove a site: its key is taken back, and it is cut off at once. Needs the server to be running.

          fedkmeans federation remove hospitals --site east""",
        {**_FOLDER, "--site NAME = required": "The site."},
    ),
    "renew": Command(
        "federation:renew_certificate",
        """Make a new certificate for the server; sites need not do anything. Start the server again
        afterwards.

          fedkmeans federation renew hospitals""",
        {**_FOLDER, "days": replace(Option.of("--days N = 365", "For how long it is good."), type=float)},
    ),
}
SITE_COMMANDS = {
    "join": Command(
        "federation:join_federation",
        """Let a site take part: check its rows, connect, and answer questions about them.

        The rows stay here. The server learns how many there are, the columns' names, and what each question
        asks for: local centroids with their weights, and scores.

          fedkmeans site join north.toml --data patients.csv
          fedkmeans site join north.toml --data patients.csv --label diagnosis --check
          fedkmeans site join north.toml --data patients.parquet --key north-key""",
        {
            "JOINFILE": "From who runs the federation.",
            "--data FILE = required": "The site's rows.",
            "--folder DIR": "What is kept between questions. Default: JOINFILE without its suffix.",
            "--key FILE": "The site's own private key, if it made one.",
            "--check": "Only look whether all is well.",
            "--min-cluster-size N = 2": "Rows that stand behind each point sent for a start.",
            "--port N = 9445": "For this machine only.",
            **shared(*(name for name in SOURCE if name != "client_column")),
        },
    ),
}
