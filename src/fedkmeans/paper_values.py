"""The paper's own figures for its synthetic data, to print beside ours.

Source: Holzer, Jacob & Kavane, "Dynamically Weighted Federated k-Means", the tables of score,
accuracy and v-measure: 100 clients that all take part, 100 runs.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PaperValue:
    """Mean and standard deviation over the paper's 100 runs."""

    mean: float
    std: float


@dataclass(frozen=True, slots=True)
class PaperRow:
    """What the paper reports for one algorithm in one distribution."""

    score: PaperValue
    accuracy: PaperValue
    v_measure: PaperValue


def _row(*numbers: float) -> PaperRow:
    means, stds = numbers[::2], numbers[1::2]
    return PaperRow(*(PaperValue(mean, std) for mean, std in zip(means, stds, strict=True)))


# Keys are the distribution and the algorithm's name in the catalogue; each row holds mean and
# standard deviation of score, accuracy and v-measure. FKM is not in the paper.
SYNTHETIC: dict[tuple[str, str], PaperRow] = {
    ("iid", "k-means"): _row(0.0780, 0.0066, 0.9093, 0.0004, 0.8299, 0.0005),
    ("iid", "ewf"): _row(0.0743, 0.0000, 0.9091, 0.0003, 0.8297, 0.0003),
    ("iid", "dwf"): _row(0.0743, 0.0000, 0.9091, 0.0003, 0.8297, 0.0003),
    ("iid", "kfed"): _row(0.0759, 0.0039, 0.9077, 0.0015, 0.8301, 0.0011),
    ("half-iid", "k-means"): _row(0.0780, 0.0066, 0.9093, 0.0004, 0.8299, 0.0005),
    ("half-iid", "ewf"): _row(0.0744, 0.0000, 0.9093, 0.0003, 0.8300, 0.0004),
    ("half-iid", "dwf"): _row(0.0744, 0.0000, 0.9093, 0.0003, 0.8299, 0.0004),
    ("half-iid", "kfed"): _row(0.0786, 0.0066, 0.9083, 0.0019, 0.8307, 0.0012),
    ("non-iid", "k-means"): _row(0.0780, 0.0066, 0.9093, 0.0004, 0.8299, 0.0005),
    ("non-iid", "ewf"): _row(0.0772, 0.0020, 0.9049, 0.0042, 0.8280, 0.0027),
    ("non-iid", "dwf"): _row(0.0744, 0.0000, 0.9093, 0.0003, 0.8298, 0.0004),
    ("non-iid", "kfed"): _row(0.0817, 0.0071, 0.9062, 0.0023, 0.8269, 0.0019),
}
