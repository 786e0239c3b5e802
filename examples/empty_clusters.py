"""What should a client do with a cluster in which it has no rows?

Three clients hold one blob each. C's centroid is already in the right place; those of A and B are not. In
this round client C is absent, and for each of the other two clients, two of the three clusters are empty.
Classical k-means relocates the centroid of an empty cluster to a distant row; here that is a row of the
wrong client. The four scenes are those of the paper's Figure 1:

- relocating, equal weights: every centroid moves to the middle between A and B;
- relocating, dynamic weights: A's and B's centroids are correct, because a client without rows in the
  cluster has weight zero. C's is not: no client gives it weight, so the server uses the plain average;
- keeping, equal weights: C's centroid stays; A's and B's move half of their way, because the other client
  returns them unchanged;
- keeping, dynamic weights (DWF k-means as published): A's and B's centroids move all of their way, and C's
  stays.

Run it with ``python examples/empty_clusters.py [folder]``; it saves ``empty_clusters.png``.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedkmeans import FederatedKMeans, InProcess, Site
from fedkmeans.metrics import score_per_sample
from fedkmeans.protocol.messages import LocalUpdate
from fedkmeans.study.plots import FAINT, INK, PALETTE, dots, legend, panels, save_figure

MAX_LOCAL = 5
RULES = {"relocate": "relocating", "keep": "keeping"}
WEIGHTS = {"equal": "equal weights", "dynamic": "dynamic weights"}
DIAMOND = {"s": 62, "marker": "D", "linewidths": 1.6}


@dataclass
class Scene:
    """One round: the rows, the global centroids before and after it, and the replies of the clients."""

    title: str
    X: np.ndarray
    clients: np.ndarray
    before: np.ndarray
    after: np.ndarray
    replies: dict


def make_data(seed=3):
    """Return three blobs, their clients, and initial centroids with C's in the right place."""
    rng = np.random.default_rng(seed)
    centers = np.array([[-2.0, -1.0], [2.0, -1.0], [0.0, 2.4]])
    X = np.vstack([center + rng.normal(scale=0.45, size=(80, 2)) for center in centers])
    clients = np.repeat(["A", "B", "C"], 80)
    start = np.array([[-1.2, 0.4], [1.2, 0.4], X[clients == "C"].mean(axis=0)])
    return X, clients, start


def one_round(X, clients, start, empty_clusters, weighting):
    """Run one global round without client C, and keep the replies of the other two."""
    sites = [Site(name, X[clients == name]) for name in "AB"]
    query = LocalUpdate(start, MAX_LOCAL, 0.0, weighting, empty_clusters)
    replies = {site.name: site.answer(query) for site in sites}
    model = FederatedKMeans.paper(
        3,
        weighting=weighting,
        empty_clusters=empty_clusters,
        max_local=MAX_LOCAL,
        tol_local=0.0,
        init=start,
        learning_rate=1.0,  # a full step, so that the figure shows the average itself
        momentum=0.0,
        max_rounds=1,
    ).fit_federation(InProcess(sites))
    score = score_per_sample(X, model.cluster_centers_)
    return Scene(
        title=f"{RULES[empty_clusters]}, {WEIGHTS[weighting]}\nscore over all clients: {score:.2f}",
        X=X,
        clients=clients,
        before=start,
        after=model.cluster_centers_,
        replies=replies,
    )


def draw(scenes):
    """Draw a map of each scene: rows, local centroids, and how the global centroids moved."""
    fig, axes = panels(scenes[0].X, [scene.title for scene in scenes], n_columns=2)
    for ax, scene in zip(axes, scenes, strict=True):
        for colour, client in zip(PALETTE, "ABC", strict=False):
            draw_client(ax, client, scene.X[scene.clients == client], scene.replies.get(client), colour)
        for before, after in zip(scene.before, scene.after, strict=True):
            arrow = {"arrowstyle": "-|>", "color": INK, "linewidth": 1.4, "shrinkA": 4, "shrinkB": 5}
            ax.annotate("", xy=tuple(after), xytext=tuple(before), arrowprops=arrow, zorder=5)
        circle = {"s": 46, "c": "white", "edgecolors": INK, "linewidths": 1.4}
        dots(ax, scene.before, zorder=6, label="global, before", **circle)
        star = {"s": 190, "marker": "*", "edgecolors": "white", "linewidths": 0.6}
        dots(ax, scene.after, c=INK, zorder=7, label="global, after", **star)
        # Only for the legend: the hollow diamonds of all clients.
        dots(ax, np.empty((0, 2)), c="white", edgecolors=INK, label="sent with weight 0", **DIAMOND)
    legend(fig, axes[0], n_columns=4)
    return fig


def draw_client(ax, client, rows, reply, colour):
    if reply is None:
        dots(ax, rows, s=16, c="none", edgecolors=FAINT, linewidths=1, label=f"client {client}: absent")
        return
    dots(ax, rows, s=12, c=colour, alpha=0.35, linewidths=0, label=f"client {client}: rows")
    style = DIAMOND | {"edgecolors": colour, "zorder": 4}
    counts = reply.weights > 0
    dots(ax, reply.centroids[counts], c=colour, label=f"client {client}: centroids sent", **style)
    dots(ax, reply.centroids[~counts], c="white", **style)


def main(folder="."):
    X, clients, start = make_data()
    print(f"before the round: score {score_per_sample(X, start):.2f}")
    scenes = [one_round(X, clients, start, rule, weights) for rule in RULES for weights in WEIGHTS]
    for scene in scenes:
        moved = np.linalg.norm(scene.after[2] - scene.before[2])
        print(scene.title.replace("\n", ", "), f"-> C's centroid moved by {moved:.2f}")
    return save_figure(draw(scenes), Path(folder) / "empty_clusters.png", dpi=120)


if __name__ == "__main__":
    print(main(*sys.argv[1:]))
