"""Why the paper's update fails if few clients take part in a round, and how memory helps.

There are ten clients, and the server asks one in each round. Three clients hold the rows of a group at 0,
about a thousand in total. The others hold a group at 10, and each has a few stray rows near 4 that belong to
the first cluster. The paper divides by the weights of the round: a round with four stray rows pulls the
centroid to 4 as hard as a round with three hundred rows pulls it to 0, and there are more of the former.
With memory, each row counts once.

Run it with ``python examples/remembering.py [folder]``; it saves ``remembering.png``.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from fedkmeans import FederatedKMeans, InProcess, Site
from fedkmeans.kernels.reference.lloyd import assign
from fedkmeans.study.plots import save_figure

N_ROUNDS = 80
START = np.array([[0.0], [10.0]])
BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#8a8a8a"


def make_sites(seed=0):
    """Return three clients of the group at 0, and seven of the group at 10 with stray rows near 4."""
    rng = np.random.default_rng(seed)
    sites = [Site(f"bulk {i}", rng.normal(0.0, 0.5, size=(333, 1))) for i in range(3)]
    for i in range(7):
        stray = rng.normal(4.0, 0.3, size=(rng.integers(2, 7), 1))
        sites.append(Site(f"stray {i}", np.vstack([rng.normal(10.0, 0.5, size=(140, 1)), stray])))
    return sites


def path_of(model, federation):
    """Return the first centroid after each round, shape (rounds,), and the clients that were asked."""
    path, asked = [], []

    def watch(state, info):
        path.append(state.centroids[0, 0])
        asked.append(info.asked[0])

    model.fit_federation(federation, on_round=watch)
    return np.array(path), asked


def main(folder="."):
    federation = InProcess(make_sites())
    # Both ask the same clients in the same rounds and make one local step.
    same = {"init": START, "clients_per_round": 1, "participation": "random", "max_local": 1}
    end = {"max_rounds": N_ROUNDS, "tol": 0, "random_state": 1}
    one_round, asked = path_of(FederatedKMeans.paper(2, **same | end), federation)
    remembered, _ = path_of(FederatedKMeans(2, **same, **end, tol_score=0), federation)
    pooled, _ = path_of(FederatedKMeans(2, init=START, tol_score=0), federation)
    rows = {name: site.X[assign(site.X, START) == 0] for name, site in federation.sites.items()}
    print(f"pooled k-means {pooled[-1]:.2f}")
    print(f"each round for itself (the paper) {one_round[-1]:.2f}")
    print(f"last word of every client {remembered[-1]:.2f}")

    figure, axes = plt.subplots(figsize=(8.5, 4.6), layout="constrained")
    rounds = np.arange(1, N_ROUNDS + 1)
    means = np.array([rows[name].mean() for name in asked])
    sizes = np.array([len(rows[name]) for name in asked])
    axes.scatter(rounds, means, s=6 + sizes / 2, color=GREY, alpha=0.45, linewidths=0)
    axes.annotate("rounds with a few stray rows (2 to 6)", (rounds[-1], 4.55), ha="right", color="#5a5a5a")
    axes.annotate("rounds with 333 rows", (rounds[-1], -0.72), ha="right", color="#5a5a5a")
    axes.axhline(pooled[-1], color="black", linestyle="--", linewidth=1)
    axes.annotate("pooled k-means", (N_ROUNDS, pooled[-1] + 0.12), ha="right")
    axes.plot(rounds, one_round, color=ORANGE, linewidth=2.2)
    axes.annotate("each round for itself (the paper)", (30, one_round[29] + 0.32), color=ORANGE)
    axes.plot(rounds, remembered, color=BLUE, linewidth=2.2)
    axes.annotate("last word of every client", (38, remembered[37] + 0.25), color=BLUE)
    axes.set(
        xlabel="round",
        ylabel="place of the first centroid",
        title="One of ten clients is asked in a round; a dot is what its rows say, as large as their number",
        xlim=(0, N_ROUNDS + 1),
        ylim=(-1, 5),
    )
    axes.title.set_fontsize(11)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return save_figure(figure, Path(folder) / "remembering.png", dpi=110)


if __name__ == "__main__":
    print(main(*sys.argv[1:]))
