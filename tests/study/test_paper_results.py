"""The committed tables say what `docs/reproducing.md` says they do."""

from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs/results/paper"
DATA, METRICS = ("synthetic", "mnist", "femnist"), ("score", "accuracy", "v_measure")


@pytest.fixture(scope="module")
def compared():
    cells = pd.concat([pd.read_csv(RESULTS / f"{data}-{metric}.csv") for data in DATA for metric in METRICS])
    return cells[cells["paper_mean"].notna()]


def test_all_cells_but_one_case_agree_with_the_paper(compared):
    apart = compared[compared["z"].abs() > 2]
    assert (len(compared), len(apart)) == (96, 3)
    assert set(zip(apart["data"], apart["distribution"], apart["algorithm"], strict=True)) == {
        ("MNIST", "non-iid", "ewf")
    }
    page = (ROOT / "docs/reproducing.md").read_text(encoding="utf-8")
    assert "Of the 96 cells of its three tables that can be compared, 93 are within 2" in page


@pytest.mark.parametrize(("data", "runs"), [("synthetic", 100), ("mnist", 20), ("femnist", 20)])
def test_each_cell_has_as_many_runs_as_the_page_says(data, runs):
    for metric in METRICS:
        found = pd.read_csv(RESULTS / f"{data}-{metric}.csv")["runs"].unique().tolist()
        assert found == [runs if metric == "score" else runs // 2]


@pytest.mark.parametrize("data", DATA)
def test_tables_are_those_of_the_runs(data):
    table = pd.read_csv(RESULTS / f"{data}-score.csv").set_index(["data", "distribution", "algorithm"])
    runs = pd.read_csv(RESULTS / f"{data}-runs.csv.gz")
    runs = runs[runs["clients_per_round"] == 100]
    for (_, distribution, algorithm), group in runs.groupby(["data", "distribution", "algorithm"]):
        row = table.xs((distribution, algorithm), level=("distribution", "algorithm")).iloc[0]
        assert group["score"].mean() == pytest.approx(row["mean"], rel=1e-9)
        assert len(group) == row["runs"]
