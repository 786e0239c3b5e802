"""Draw the figures of the README and the documentation.

Run it from the root of the repository with ``python examples/make_images.py docs/images``. It draws
``fedkmeans.png`` (the paths of the centroids of EWF and DWF k-means if each of 100 clients holds one small
patch of the plane) and ``empty_clusters.png`` (the scenes of ``examples/empty_clusters.py``). An optional
second argument limits the number of rounds.
"""

import sys
from pathlib import Path

import empty_clusters
import numpy as np
from PIL import Image

from fedkmeans import InProcess
from fedkmeans.data import load_synthetic, partition
from fedkmeans.registry import make
from fedkmeans.study.plots import plot_paths, save_figure

TITLES = {"ewf": "Equal weights (EWF)", "dwf": "Dynamic weights (DWF)"}


def path_of(name, X, clients, start, n_rounds):
    """Return the centroids before the first round and after each, shape (rounds + 1, k, 2), and the score."""
    path = [start]
    model = make(name, n_clusters=len(start), init=start, max_rounds=n_rounds, random_state=0)
    federation = InProcess.from_arrays(X, clients)
    model.fit_federation(federation, on_round=lambda state, info: path.append(state.centroids))
    return np.array(path), model.score_per_sample_


def main(folder=".", n_rounds="10000"):
    data = load_synthetic()
    clients = partition("non-iid", data.X, data.y, 100, np.random.default_rng(0))
    angles = 2 * np.pi * (np.arange(5) / 5 - 0.25)
    start = data.X.mean(axis=0) + 0.2 * np.column_stack([np.cos(angles), np.sin(angles)])
    pooled = make("k-means", n_clusters=5, n_init=10, random_state=0).fit(data.X)
    paths = {}
    for name, title in TITLES.items():
        path, score = path_of(name, data.X, clients, start, int(n_rounds))
        paths[
            f"{title}\n{len(path) - 1:,} rounds, score {score:.4f} (pooled {pooled.score_per_sample_:.4f})"
        ] = path
    figure = plot_paths(data.X, paths, clients=clients, reference=pooled.cluster_centers_)
    figure.suptitle("100 clients, each with one small patch of the rows (a tint each)", fontsize=12)
    # 110 dots per inch give a width of about 900 pixels, the width of a README.
    print(smaller(save_figure(figure, Path(folder) / "fedkmeans.png", dpi=110)))
    print(smaller(empty_clusters.main(folder)))


def smaller(path):
    """Rewrite a PNG with 256 colours, which looks the same and takes less than half the bytes."""
    with Image.open(path) as image:
        # The default method drops the colours of small areas, such as lines.
        few = image.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(path, optimize=True)
    return path


if __name__ == "__main__":
    main(*sys.argv[1:])
