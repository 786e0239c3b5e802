"""The tables of a study: their numbers, by hand, and that each form can be read again."""

import io
import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from fedkmeans.errors import ParameterError, StudyError
from fedkmeans.study import Store, run_study, tasks_of
from fedkmeans.study.paper_values import PAPER_VALUES
from fedkmeans.study.results import load_results
from fedkmeans.study.tables import COLUMNS, render, summarize
from tests.study.frames import SYNTHETIC, make_frame, make_plan

FORMS = ("text", "markdown", "latex", "csv")
POOLED = ("synthetic", None, "k-means", None, [0.07, 0.08, 0.09])
POOLED_ROW = "IID k-means 3 0.0800 0.0700 0.0100 0.0780 0.0743 0.0066 +0.30 +0.50"
DWF = ("synthetic", "iid", "dwf", 100, [0.0742, 0.0744, 0.0746, 0.0748])


@pytest.fixture
def plan():
    return make_plan()


def cell(summary: pd.DataFrame, distribution: str, algorithm: str, data: str = "Synthetic") -> pd.Series:
    here = summary[["data", "distribution", "algorithm"]] == [data, distribution, algorithm]
    (row,) = summary[here.all(axis=1)].to_dict("records")
    return pd.Series(row)


def table_lines(text: str, algorithm: str) -> list[str]:
    return [line for line in text.splitlines() if algorithm in line]


# --- numbers -----------------------------------------------------------------------------------


def test_mean_best_and_spread_are_those_of_a_sample(plan):
    row = cell(summarize(plan, make_frame(DWF)), "iid", "dwf")
    assert (row["runs"], row["clients_per_round"]) == (4, 100)
    assert row["mean"] == pytest.approx(0.0745, rel=1e-12)
    assert row["best"] == 0.0742
    assert row["std"] == pytest.approx(math.sqrt((9 + 1 + 1 + 9) / 3) * 1e-4, rel=1e-9)


def test_the_best_score_is_the_least_and_the_best_accuracy_the_largest(plan):
    frame = make_frame((*DWF[:4], [0.1, 0.3, 0.2], {"accuracy": [0.5, 0.7, 0.6]}))
    assert cell(summarize(plan, frame, "score"), "iid", "dwf")["best"] == 0.1
    assert cell(summarize(plan, frame, "accuracy"), "iid", "dwf")["best"] == 0.7


def test_the_difference_from_the_paper_by_hand(plan):
    """For k-means the paper has 0.0780, 0.0743, 0.0066."""
    row = cell(summarize(plan, make_frame(POOLED, DWF)), "iid", "k-means")
    assert tuple(row[["paper_mean", "paper_best", "paper_std"]]) == (0.0780, 0.0743, 0.0066)
    assert row["off_by_std"] == pytest.approx((0.08 - 0.0780) / 0.0066)
    # 0.002 less half of the last printed digit, over (0.0066 and half of its last digit) √(1/3 + 1/100)
    assert row["z"] == pytest.approx(0.00195 / (0.00665 * math.sqrt(1 / 3 + 0.01)))


def test_z_has_the_sign_of_the_difference(plan):
    frame = make_frame(("synthetic", "iid", "kfed", 100, [0.07, 0.07]))
    row = cell(summarize(plan, frame), "iid", "kfed")  # the paper's mean is 0.0759, its std 0.0039
    assert row["z"] == pytest.approx(-(0.0059 - 0.00005) / (0.00395 * math.sqrt(0.51)))
    assert row["off_by_std"] == pytest.approx(-0.0059 / 0.0039)


def test_what_rounding_explains_is_no_difference(plan):
    mean, _, _ = PAPER_VALUES["synthetic", "iid", "dwf", "score"]
    frame = make_frame((*DWF[:4], [mean + 0.00004, mean + 0.00005 - 1e-9]))
    assert cell(summarize(plan, frame), "iid", "dwf")["z"] == 0


def test_a_printed_spread_of_zero_makes_nothing_infinite(plan):
    """For DWF the paper has 0.0743 and 0.0000."""
    row = cell(summarize(plan, make_frame(DWF)), "iid", "dwf")
    assert row["paper_std"] == 0
    assert math.isnan(row["off_by_std"])
    assert row["z"] == pytest.approx((0.0002 - 0.00005) / (0.00005 * math.sqrt(1 / 4 + 1 / 100)))


def test_one_run_has_no_spread_but_a_place(plan):
    row = cell(summarize(plan, make_frame((*DWF[:4], [0.0745]))), "iid", "dwf")
    assert (row["runs"], row["mean"], row["best"]) == (1, 0.0745, 0.0745)
    assert math.isnan(row["std"])
    assert row["z"] == pytest.approx(0.00015 / (0.00005 * math.sqrt(1.01)))


def test_pooled_runs_stand_in_every_distribution(plan):
    summary = summarize(plan, make_frame(POOLED, DWF))
    rows = [cell(summary, name, "k-means") for name in ("iid", "non-iid")]
    assert [row["mean"] for row in rows] == pytest.approx([0.08, 0.08])
    assert [row["runs"] for row in rows] == [3, 3]
    assert all(pd.isna(row["clients_per_round"]) for row in rows)


def test_each_cell_of_the_plan_has_a_row_in_its_order_with_runs_or_without(plan):
    summary = summarize(plan, make_frame(DWF))
    names = [(d, a) for d in ("iid", "non-iid") for a in ("k-means", "dwf", "kfed")]
    assert list(zip(summary["distribution"], summary["algorithm"], strict=True)) == names
    assert list(summary.columns) == list(COLUMNS)
    assert summary["runs"].tolist() == [0, 4, 0, 0, 0, 0]
    missing = cell(summary, "non-iid", "kfed")
    assert missing["paper_mean"] == 0.0817
    assert missing[["mean", "best", "std", "off_by_std", "z"]].isna().all()


def test_data_sets_of_one_title_share_a_table_and_keep_their_pooled_runs():
    one, two = ({"name": name, "title": "Both", "load": "synthetic", "k": 2} for name in ("one", "two"))
    plan = make_plan(one | {"distribution": "iid"}, two | {"distribution": "half-iid"})
    frame = make_frame(("one", None, "k-means", None, [1.0]), ("two", None, "k-means", None, [2.0]))
    summary = summarize(plan, frame)
    assert cell(summary, "iid", "k-means", "Both")["mean"] == 1
    assert cell(summary, "half-iid", "k-means", "Both")["mean"] == 2
    assert render(plan, frame).count("Both") == 1


def test_data_sets_that_cannot_be_told_apart_are_refused():
    one, two = ({"name": name, "title": "Both", "load": "synthetic", "k": 2} for name in ("one", "two"))
    plan = make_plan(one | {"distribution": "iid"}, two | {"distribution": "iid"})
    with pytest.raises(StudyError, match="one and two have one title, 'Both'"):
        summarize(plan, make_frame(("one", None, "k-means", None, [1.0])))


# --- where the paper's values stand ------------------------------------------------------------


def test_the_paper_is_not_beside_runs_with_some_clients_only(plan):
    frame = make_frame(POOLED, DWF, (*DWF[:3], 5, [0.08, 0.09]))
    summary = summarize(plan, frame, clients=5)
    assert cell(summary, "iid", "dwf")["mean"] == pytest.approx(0.085)
    assert summary["paper_mean"].isna().all()
    assert summary["z"].isna().all()


def test_the_paper_is_not_beside_data_that_does_not_name_it():
    plan = make_plan({key: value for key, value in SYNTHETIC.items() if key != "paper"})
    summary = summarize(plan, make_frame(DWF))
    assert summary["paper_mean"].isna().all()
    assert "paper" not in render(plan, make_frame(DWF))


def test_the_paper_goes_by_the_rule_and_by_the_algorithm_not_by_their_names():
    rules = [{"rule": "non-iid", "name": "iid"}, {"rule": "dirichlet", "alpha": 1, "name": "non-iid"}]
    mine = {"name": "mine", "algorithm": "dwf", "max_rounds": 9}
    plan = make_plan(SYNTHETIC | {"distributions": rules}, algorithms=["fkm", mine])
    summary = summarize(plan, make_frame((*DWF[:2], "mine", 100, [0.1])))
    paper = PAPER_VALUES["synthetic", "non-iid", "dwf", "score"]
    assert tuple(cell(summary, "iid", "mine")[["paper_mean", "paper_best", "paper_std"]]) == paper
    assert summary["paper_mean"].notna().sum() == 1  # FKM and Dirichlet are not in the paper


def test_metrics_that_are_not_in_the_paper_stand_alone(plan):
    frame = make_frame((*DWF, {"homogeneity": 0.5}))
    row = cell(summarize(plan, frame, "homogeneity"), "iid", "dwf")
    assert row["mean"] == 0.5
    assert math.isnan(row["paper_mean"])


def test_a_study_of_pooled_runs_only_has_no_clients_per_round():
    plan = make_plan(algorithms=["k-means"])
    row = cell(summarize(plan, make_frame(POOLED)), "iid", "k-means")
    assert (row["runs"], row["paper_mean"]) == (3, 0.0780)
    assert "per round" not in render(plan, make_frame(POOLED))
    with pytest.raises(StudyError, match="there are pooled runs only"):
        summarize(plan, make_frame(POOLED), clients=100)


# --- what can be asked -------------------------------------------------------------------------


def test_the_largest_number_of_clients_is_shown_unless_told_otherwise(plan):
    frame = make_frame((*DWF[:3], 5, [1.0]), (*DWF[:3], 10, [2.0]))
    assert cell(summarize(plan, frame), "iid", "dwf")["mean"] == 2
    assert cell(summarize(plan, frame, clients=5), "iid", "dwf")["mean"] == 1
    with pytest.raises(StudyError, match="no runs with 7 clients per round; there are runs with 5, 10"):
        summarize(plan, frame, clients=7)


def test_unknown_metrics_and_forms_are_refused_with_the_choices(plan):
    with pytest.raises(
        ParameterError, match=r"metric must be one of accuracy, .*score, v_measure; got 'ari'"
    ):
        summarize(plan, make_frame(DWF), "ari")
    with pytest.raises(ParameterError, match="format must be one of csv, latex, markdown, text; got 'html'"):
        render(plan, make_frame(DWF), form="html")


def test_a_metric_that_needs_labels_is_refused_where_there_are_none(plan):
    with pytest.raises(StudyError, match="no v-measure: the data has no labels"):
        summarize(plan, make_frame(DWF), "v_measure")


def test_only_data_without_labels_is_empty_beside_data_that_has_some():
    plain = {"name": "plain", "load": "digits", "k": 3, "distributions": ["iid"]}
    plan = make_plan(SYNTHETIC, plain)
    frame = make_frame((*DWF, {"accuracy": 0.9}), ("plain", "iid", "dwf", 100, [1.0, 2.0]))
    summary = summarize(plan, frame, "accuracy")
    assert cell(summary, "iid", "dwf")["runs"] == 4
    assert cell(summary, "iid", "dwf", "plain")["runs"] == 0
    assert "over 4 runs" in render(plan, frame, "accuracy")


# --- forms -------------------------------------------------------------------------------------


def test_csv_gives_back_every_number(plan):
    frame = make_frame(POOLED, DWF)
    summary = summarize(plan, frame)
    text = render(plan, frame, form="csv")
    types = {"clients_per_round": "Int64"}
    # Else pandas reads some numbers a bit too low or high.
    read = pd.read_csv(io.StringIO(text), dtype=types, float_precision="round_trip")
    assert set(read.pop("metric")) == {"score"}
    pd.testing.assert_frame_equal(read, summary, check_dtype=False, check_exact=True)


def test_text_says_the_numbers_with_four_digits_and_a_dash_for_none(plan):
    text = render(plan, make_frame(POOLED, (*DWF[:4], [0.07452])))
    pooled, dwf = table_lines(text, " k-means ")[0], table_lines(text, "DWF k-means")[0]
    assert " ".join(pooled.split()) == POOLED_ROW
    # One run has no spread, and a printed spread of 0.0000 is nothing to count in.
    assert dwf.split()[3:] == ["0.0745", "0.0745", "–", "0.0743", "0.0743", "0.0000", "–", "+3.38"]


def test_the_columns_of_a_text_align_at_the_point():
    plan = make_plan(algorithms=["k-means", "dwf", "ewf"])
    frame = make_frame(POOLED, (*DWF[:4], [123.4, 0.1]), ("synthetic", "iid", "ewf", 100, [5.0, 7.0]))
    text = render(plan, frame)
    rows = [line for line in text.splitlines() if re.search(r"\d\.\d{4} .*\d\.\d\d$", line)]
    points = [[match.start() for match in re.finditer(r"\.", row)] for row in rows]
    full = [places for places in points if len(places) == 8]
    assert len(full) == 2  # pooled runs, in both distributions
    known = set(full[0])
    assert all(set(places) <= known for places in points)
    assert max(map(len, text.splitlines())) <= 120


def test_next_to_nothing_has_no_sign(plan):
    frame = make_frame(("synthetic", "iid", "kfed", 100, [0.0759 - 1e-6]))
    assert table_lines(render(plan, frame), "k-FED")[0].split()[-2:] == ["0.00", "0.00"]


def test_a_difference_to_below_has_a_minus_sign(plan):
    frame = make_frame(("synthetic", "iid", "kfed", 100, [0.0720]))
    assert table_lines(render(plan, frame), "k-FED")[0].split()[-2] == "−1.00"
    assert "$-$1.00" in render(plan, frame, form="latex")


@pytest.mark.parametrize("form", ["text", "markdown", "latex"])
def test_the_notes_say_from_what_the_numbers_are(plan, form):
    frame = make_frame(POOLED, DWF, (*DWF[:3], 5, [0.08, 0.09]))
    text = " ".join(render(plan, frame, form=form).split())
    assert "over 3 to 4 runs, 100 of 100 clients per round, seed 7." in text
    assert "over 100 runs; all clients took part" in text
    assert "best (least)" in text
    assert "5 of 100 clients per round" in " ".join(render(plan, frame, clients=5, form=form).split())


def test_the_best_share_of_the_runs_counts_by_their_score(plan):
    runs = {"accuracy": [0.5, 0.9, 0.7, 0.8]}
    frame = make_frame((*DWF[:4], [0.4, 0.1, 0.2, 0.3], runs))
    row = cell(summarize(plan, frame, "accuracy", best=0.5), "iid", "dwf")
    assert (row["runs"], row["mean"], row["best"]) == (2, pytest.approx(0.8), 0.9)
    assert cell(summarize(plan, frame, "accuracy", best=0.51), "iid", "dwf")["runs"] == 3
    assert "2 runs, those 50% of the runs with the lowest score" in " ".join(
        render(plan, frame, "accuracy", best=0.5).split()
    )
    for wrong in (0, 1.1, -1):
        with pytest.raises(ParameterError, match="best"):
            summarize(plan, frame, best=wrong)


def test_the_papers_accuracies_are_of_half_as_many_runs(plan):
    frame = make_frame((*DWF[:4], [0.0743] * 4, {"accuracy": [0.9, 0.9, 0.9, 0.9]}))
    row = cell(summarize(plan, frame, "accuracy"), "iid", "dwf")  # the paper: 0.9091, std 0.0003
    assert row["z"] == pytest.approx(-(0.0091 - 5e-5) / (3.5e-4 * math.sqrt(1 / 4 + 1 / 50)))


def test_markdown_has_the_same_columns_in_each_row(plan):
    lines = [
        line for line in render(plan, make_frame(POOLED, DWF), form="markdown").splitlines() if "|" in line
    ]
    assert len(lines) == 2 + 6
    rows = [[word.strip() for word in line.strip("|").split("|")] for line in lines]
    assert {len(row) for row in rows} == {11}
    assert rows[0][6:] == ["paper mean", "paper best", "paper std", "difference in std", "z"]
    assert " ".join(rows[2]) == POOLED_ROW
    assert rows[3][0] == ""
    assert rows[5][0] == "non-IID"


def test_latex_has_balanced_environments_and_as_many_columns_as_it_says(plan):
    text = render(plan, make_frame(POOLED, DWF), form="latex")
    open_ = []
    for which, name in re.findall(r"\\(begin|end)\{(\w+)\}", text):
        if which == "begin":
            open_.append(name)
        else:
            assert open_.pop() == name
    assert open_ == []
    (columns,) = re.findall(r"\\begin\{tabular\}\{([lr]+)\}", text)
    assert columns == "ll" + 9 * "r"
    rows = [line.removesuffix(r" \\") for line in text.splitlines() if line.endswith(r" \\")]
    spans, *plain = rows
    assert sum(int(n) for n in re.findall(r"\\multicolumn\{(\d+)\}", spans)) == len(columns)
    assert [len(row.split(" & ")) for row in plain] == [len(columns)] * 7
    for rule in ("toprule", "bottomrule"):
        assert text.count(f"\\{rule}") == 1
    braces = re.sub(r"\\[{}]", "", text)
    assert braces.count("{") == braces.count("}")


NASTY = r"50% of A&B_{x} $5 #1 ~^ \ [a] *b* | <c>"


def test_latex_escapes_what_names_have():
    plan = make_plan(SYNTHETIC | {"title": NASTY}, algorithms=[{"name": "k-means", "title": NASTY}])
    text = render(plan, make_frame(POOLED), form="latex")
    body = text.replace(r"% needs \usepackage{booktabs}", "")
    assert r"50\% of A\&B\_\{x\} \$5 \#1 \textasciitilde{}\textasciicircum{} \textbackslash{}" in body
    assert re.search(r"(?<!\\)[%#]", body) is None
    assert r"{[}a{]} {*}b{*}" in body
    rows = [line for line in body.splitlines() if line.endswith(r" \\")]
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows[1:]} == {10}


def test_markdown_escapes_what_names_have():
    plan = make_plan(SYNTHETIC | {"title": NASTY}, algorithms=[{"name": "k-means", "title": NASTY}])
    rows = [
        line for line in render(plan, make_frame(POOLED), form="markdown").splitlines() if line[0:1] == "|"
    ]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {12}
    assert r"\[a\] \*b\* \| \<c\>" in rows[2]


def test_csv_quotes_what_names_have():
    title = 'a "b", c\nd'
    plan = make_plan(SYNTHETIC | {"title": title}, algorithms=["k-means"])
    read = pd.read_csv(io.StringIO(render(plan, make_frame(POOLED), form="csv")))
    assert set(read["data"]) == {title}
    assert len(read) == 2


def test_a_title_with_two_lines_does_not_tear_a_table():
    plan = make_plan(SYNTHETIC | {"title": "two\nlines"}, algorithms=[{"name": "k-means", "title": "k\n\nm"}])
    for form in ("text", "markdown", "latex"):
        text = render(plan, make_frame(POOLED), form=form)
        assert "two lines: score" in text
        assert any("k m" in line and "0.0800" in line for line in text.splitlines())


def test_data_that_comes_divided_is_not_said_to_have_the_plans_clients():
    data = {"name": "digits", "distribution": "wards", "k": 3}
    frame = make_frame(("digits", "wards", "dwf", 5, [1.0, 2.0]))
    assert "2 runs, 5 clients per round, seed 7" in " ".join(render(make_plan(data), frame).split())


@pytest.mark.parametrize("form", FORMS)
def test_every_form_ends_with_one_line_break(plan, form):
    text = render(plan, make_frame(POOLED, DWF), form=form)
    assert text.endswith("\n")
    assert not text.endswith("\n\n")


def test_numbers_come_from_a_store(tmp_path):
    """The whole way: two runs of a tiny study, once more computed from its records."""
    data = {"name": "digits", "title": "Digits", "k": 3, "distributions": ["iid"]}
    plan = make_plan(
        data, algorithms=["k-means", "kfed"], n_clients=5, clients_per_round=[5], runs=2, min_cluster_size=1
    )
    store = Store(tmp_path)
    run_study(plan, tasks_of(plan), store)
    frame = load_results(plan, store)
    summary = summarize(plan, frame, "accuracy")
    records = [facts["accuracy"] for facts in store.facts().values() if facts["algorithm"] == "kfed"]
    row = cell(summary, "iid", "kfed", "Digits")
    assert row["runs"] == 2
    assert row["mean"] == pytest.approx(np.mean(records))
    assert row["std"] == pytest.approx(abs(records[0] - records[1]) / math.sqrt(2))
    assert "over 2 runs, 5 of 5 clients per round" in " ".join(render(plan, frame).split())
    # What a plan has been given since is empty, not wrong.
    more = replace(plan, algorithms=(*plan.algorithms, make_plan(algorithms=["dwf"]).algorithms[0]))
    assert cell(summarize(more, frame), "iid", "dwf", "Digits")["runs"] == 0
