"""WF k-means, weighted federated k-means: the algorithm of the paper, without memory.

In each round the chosen clients run a few Lloyd steps from the global centroids and return their
local centroids with weights. The server averages them (`weighted_average`) and moves towards the
average with a learning rate and momentum (`server_update.advance`). The weights are the numbers of
points per cluster (DWF), equal (EWF), or given by any rule of `fedkmeans.kernels.weighting`.

Reference: Holzer, Jacob & Kavane, dynamically weighted federated k-means.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedkmeans._utils.checks import check_choice, check_integer, check_real
from fedkmeans._utils.typing import FloatArray
from fedkmeans.algorithms import server_update
from fedkmeans.algorithms.state import State, Target
from fedkmeans.kernels.base import WeightingRule
from fedkmeans.kernels.weighting import find_rule
from fedkmeans.protocol.exchange import AskTotal, Clients, Conversation, Total
from fedkmeans.protocol.messages import LocalUpdate, bytes_to

EMPTY_CLUSTERS = ("keep", "relocate")


@dataclass(frozen=True, slots=True)
class LocalWork:
    """Settings for the work of each client in a round.

    Attributes
    ----------
    weighting : str or callable
        Rule for the weight of a local centroid.
    max_local : int
        Maximum number of local steps per round.
    tol_local : float
        A client stops earlier if its centroids move less than this.
    empty_clusters : {"keep", "relocate"}
        What a client does with a cluster that contains none of its points.
    """

    weighting: str | WeightingRule = "dynamic"
    max_local: int = 5
    tol_local: float = 1e-8
    empty_clusters: str = "keep"

    def __post_init__(self) -> None:
        find_rule(self.weighting)
        check_integer("max_local", self.max_local)
        check_real("tol_local", self.tol_local, low=0, high=float("inf"))
        check_choice("empty_clusters", self.empty_clusters, EMPTY_CLUSTERS)

    def query(self, centroids: FloatArray) -> LocalUpdate:
        """Return the query that the server sends with these centroids."""
        return LocalUpdate(centroids, self.max_local, self.tol_local, self.weighting, self.empty_clusters)


def weighted_average(
    state: State, clients: Clients, chosen: Clients, *, work: LocalWork
) -> Conversation[Target]:
    """Run one round: compute the weighted average of the local centroids of the chosen clients."""
    query = work.query(state.centroids)
    total: Total = yield AskTotal(query, chosen)
    d = server_update.target(total.record)
    return Target(d, total.answered, bytes_to(chosen, query), total.received)
