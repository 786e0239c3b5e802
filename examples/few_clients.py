"""One hundred clients, ten of them per round; some replies are lost, and one client leaves permanently.

The server remembers the latest statistics of each client, so that all clients count in every round. Run
it with ``python examples/few_clients.py``.
"""

import numpy as np

from fedkmeans import FederatedKMeans, InProcess
from fedkmeans.data import load_synthetic, partition
from fedkmeans.protocol.messages import SendStatistics


class Unreliable(InProcess):
    """A federation that loses one reply in five during the rounds."""

    rng = np.random.default_rng(0)

    def ask(self, query, clients):
        replies = super().ask(query, clients)
        lost = isinstance(query, SendStatistics) & (self.rng.random(len(clients)) < 0.2)
        return {client: replies[client] for client, is_lost in zip(clients, lost, strict=True) if not is_lost}


def leave(state, info):
    """Remove client 7 after round 15; from then on, its statistics do not count."""
    if info.round == 15:
        federation.remove("7")


data = load_synthetic()
clients = partition("non-iid", data.X, data.y, 100, np.random.default_rng(0))
federation = Unreliable.from_arrays(data.X, clients)
model = FederatedKMeans(5, clients_per_round=10, random_state=0)
model.fit_federation(federation, on_round=leave)
print(model.history_[["round", "asked", "participants", "estimate", "bytes_sent", "bytes_received"]].tail(3))
print(f"{model.n_iter_} rounds, stopped by {model.stop_reason_!r}, score {model.score_per_sample_:.4f}")
