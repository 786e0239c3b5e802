"""The figures of a study: what is drawn where, and from which runs."""

import io
import math

import numpy as np
import pytest
from matplotlib.collections import LineCollection, PolyCollection

from fedkmeans.errors import ParameterError, StudyError
from fedkmeans.study import Store, run_study, tasks_of
from fedkmeans.study.figures import draw, draw_curves, looks_of
from fedkmeans.study.plots import INK
from fedkmeans.study.results import averages, load_results, mean_curves
from tests.study.frames import SYNTHETIC, make_frame, make_plan

POOLED = ("synthetic", None, "k-means", None, [1.0, 3.0])
TWO_NUMBERS = (
    ("synthetic", "iid", "dwf", 5, [4.0, 6.0]),
    ("synthetic", "iid", "dwf", 100, [2.0, 3.0]),
    ("synthetic", "iid", "kfed", 5, [5.0, 5.0]),
    ("synthetic", "iid", "kfed", 100, [4.0, 4.0]),
)


@pytest.fixture
def plan():
    return make_plan()


def line_of(ax, plan, algorithm: str) -> np.ndarray:
    """The points of the line that has the algorithm's colour."""
    colour = looks_of(plan)[algorithm].color
    # The ends of bars are lines of the same colour, without a line between them.
    (line,) = (one for one in ax.get_lines() if one.get_color() == colour and one.get_linestyle() != "None")
    return np.asarray(line.get_xydata())


def bands_of(ax) -> list[PolyCollection]:
    return [one for one in ax.collections if isinstance(one, PolyCollection)]


def bars_of(ax) -> list[LineCollection]:
    return [one for one in ax.collections if isinstance(one, LineCollection)]


def legend(fig) -> list[str]:
    (found,) = fig.legends
    return [text.get_text() for text in found.get_texts()]


def note(fig) -> str:
    return fig.legends[0].get_title().get_text()


def as_png(fig) -> bytes:
    buffer = io.BytesIO()
    fig.savefig(buffer, format="png", dpi=50)
    return buffer.getvalue()


# --- averages ----------------------------------------------------------------------------------


def test_the_best_runs_are_those_with_the_lowest_score_whatever_the_metric(plan):
    cell = ("synthetic", "iid", "dwf", 100, [5.0, 1.0, 4.0, 2.0], {"accuracy": [0.9, 0.8, 0.1, 0.4]})
    (point,) = averages(plan, make_frame(cell), "accuracy", 0.5).to_dict("records")
    assert (point["runs"], point["of"]) == (2, 4)
    assert point["mean"] == pytest.approx(0.6)
    assert point["std"] == pytest.approx(0.4 / math.sqrt(2))


@pytest.mark.parametrize(
    ("best", "n", "count"), [(1, 3, 3), (0.5, 3, 2), (0.5, 1, 1), (0.001, 9, 1), (0.07, 100, 7), (0.34, 3, 2)]
)
def test_the_share_of_runs_is_rounded_up(plan, best, n, count):
    frame = make_frame(("synthetic", "iid", "dwf", 100, list(range(n, 0, -1))))
    (point,) = averages(plan, frame, "score", best).to_dict("records")
    assert (point["runs"], point["of"]) == (count, n)
    assert point["mean"] == (count + 1) / 2


def test_runs_of_one_score_count_in_their_order(plan):
    cell = ("synthetic", "iid", "dwf", 100, [1.0, 1.0], {"accuracy": [0.2, 0.8]})
    assert averages(plan, make_frame(cell)[::-1], "accuracy", 0.5)["mean"].tolist() == [0.2]


@pytest.mark.parametrize("best", [0, -0.1, 1.01, math.nan, "half"])
def test_a_share_that_is_none_is_refused(plan, best):
    with pytest.raises(ParameterError, match=r"best must be a number in \(0, 1\]"):
        draw(plan, make_frame(POOLED), [], best)


def test_pooled_runs_stand_in_every_distribution(plan):
    points = averages(plan, make_frame(POOLED), "score", 1)
    assert points["distribution"].tolist() == ["iid", "non-iid"]
    assert points["mean"].tolist() == [2, 2]
    assert points["clients_per_round"].isna().all()


# --- metrics by clients per round --------------------------------------------------------------


def test_rows_are_metrics_and_columns_distributions(plan):
    cells = [(*cell, {"accuracy": 0.5, "v_measure": 0.4}) for cell in TWO_NUMBERS]
    fig = draw(plan, make_frame(*cells), [])
    labels = [ax.get_ylabel() for ax in fig.axes]
    assert labels == ["score:\nmean squared distance", "", "accuracy", "", "v-measure", ""]
    assert [ax.get_title() for ax in fig.axes] == ["IID", "non-IID", "", "", "", ""]
    assert [ax.get_xlabel() for ax in fig.axes] == [""] * 4 + ["clients per round"] * 2
    assert fig.axes[0].get_ylim() != fig.axes[2].get_ylim()


def test_means_are_lines_and_spreads_bands(plan):
    fig = draw(plan, make_frame(POOLED, *TWO_NUMBERS), ["score"], 1)
    ax = fig.axes[0]
    np.testing.assert_array_equal(line_of(ax, plan, "dwf"), [[5, 5], [100, 2.5]])
    np.testing.assert_array_equal(line_of(ax, plan, "kfed"), [[5, 5], [100, 4]])
    np.testing.assert_array_equal(line_of(ax, plan, "k-means")[:, 1], [2, 2])
    band = bands_of(ax)[0].get_paths()[0].vertices
    half = math.sqrt(2)  # of 4 and 6
    assert band[band[:, 0] == 5][:, 1].min() == pytest.approx(5 - half)
    assert band[band[:, 0] == 5][:, 1].max() == pytest.approx(5 + half)
    (shade,) = ax.patches
    assert shade.get_y() == pytest.approx(2 - half)
    assert shade.get_height() == pytest.approx(2 * half)


def test_the_legend_names_each_algorithm_once_and_its_runs(plan):
    fig = draw(plan, make_frame(POOLED, *TWO_NUMBERS), ["score"])
    assert legend(fig) == ["k-means (pooled)", "DWF k-means", "k-FED"]
    assert note(fig) == "Mean over the 1 of 2 runs with the lowest score, ± one standard deviation"
    assert fig.get_suptitle() == "A study"
    assert note(draw(plan, make_frame(*TWO_NUMBERS), ["score"], 1)).startswith("Mean over all 2 runs,")


def test_algorithms_differ_by_colour_marker_and_kind_of_line():
    names = ["last-word", "dwf", "ewf", "wf", "kfed"]
    plan = make_plan(algorithms=["k-means", *names])
    frame = make_frame(POOLED, *(("synthetic", "iid", name, n, [1.0]) for name in names for n in (5, 100)))
    handles = draw(plan, frame, ["score"]).legends[0].legend_handles
    for look in ("get_color", "get_marker"):
        assert len({getattr(handle, look)() for handle in handles}) == 6
    assert len({str(handle._dash_pattern) for handle in handles}) == 6
    assert handles[0].get_color() == INK


def test_only_what_has_runs_is_in_the_legend(plan):
    assert legend(draw(plan, make_frame(*TWO_NUMBERS[:2]), ["score"])) == ["DWF k-means"]


def test_a_cell_of_one_run_has_no_band(plan):
    frame = make_frame(("synthetic", None, "k-means", None, [1.0]), *((*c[:4], [2.0]) for c in TWO_NUMBERS))
    fig = draw(plan, frame, ["score"])
    ax = fig.axes[0]
    assert len(ax.get_lines()) == 3
    assert not bands_of(ax)
    assert not bars_of(ax)
    assert not ax.patches
    assert note(fig) == "One run each"


def test_ticks_are_the_numbers_of_clients_on_the_scale_that_spreads_them(plan):
    def axis(numbers):
        frame = make_frame(*(("synthetic", "iid", "dwf", n, [1.0]) for n in numbers))
        return draw(plan, frame, ["score"]).axes[0]

    for numbers, scale in [((5, 10, 25, 50, 100), "log"), (range(1, 11), "linear"), ((5, 20), "linear")]:
        ax = axis(numbers)
        assert ax.get_xscale() == scale
        assert ax.get_xticks().tolist() == list(numbers)
        assert [tick.get_text() for tick in ax.get_xticklabels()] == [str(n) for n in numbers]
        assert len(ax.get_xticks(minor=True)) == 0
        low, high = ax.get_xlim()
        assert low < min(numbers) <= max(numbers) < high


def test_one_number_of_clients_gives_points_side_by_side_with_bars(plan):
    ax = draw(plan, make_frame(POOLED, *TWO_NUMBERS[1::2]), ["score"], 1).axes[0]
    ((dwf, dwf_score),), ((kfed, kfed_score),) = (line_of(ax, plan, name) for name in ("dwf", "kfed"))
    assert (dwf_score, kfed_score) == (2.5, 4)
    assert dwf < 100 < kfed
    assert ax.get_xlim() == (99.5, 100.5)
    assert ax.get_xticks().tolist() == [100]
    assert not bands_of(ax)
    (low, high) = bars_of(ax)[0].get_segments()[0][:, 1]
    assert (low, high) == pytest.approx((2.5 - math.sqrt(0.5), 2.5 + math.sqrt(0.5)))


def test_pooled_runs_alone_are_a_level(plan):
    ax = draw(plan, make_frame(POOLED), ["score"], 1).axes[0]
    assert [set(line.get_ydata()) for line in ax.get_lines()] == [{2.0}]
    assert len(ax.get_xticks()) == 0


def test_data_sets_of_one_title_stand_side_by_side_with_axes_of_their_own():
    plan = make_plan(
        {"name": "a", "title": "One", "load": "digits", "k": 2, "distribution": "iid"},
        {"name": "b", "title": "One", "load": "digits", "k": 2, "distribution": "half-iid"},
        {"name": "c", "title": "Other", "load": "digits", "k": 2, "distribution": "non-iid"},
        algorithms=["k-means"],
    )
    frame = make_frame(
        *((data, None, "k-means", None, [x]) for data, x in zip("abc", (1, 2, 50), strict=True))
    )
    one, two, other = draw(plan, frame, ["score"]).axes
    assert [ax.get_title() for ax in (one, two, other)] == ["One: IID", "One: half-IID", "Other: non-IID"]
    assert len({ax.get_ylim() for ax in (one, two, other)}) == 3
    assert [ax.get_ylabel() != "" for ax in (one, two, other)] == [True, False, True]
    assert one.get_position().y0 == other.get_position().y0


def test_titles_that_do_not_fit_side_by_side_stand_below_each_other():
    rules = ["iid", "half-iid", "non-iid", "clustered"]
    digits = {"name": "digits", "k": 2, "distributions": rules}
    plan = make_plan(digits, SYNTHETIC, algorithms=["k-means"])
    frame = make_frame(POOLED, ("digits", None, "k-means", None, [9.0]))
    shown = [ax for ax in draw(plan, frame, ["score"]).axes if ax.axison]
    assert [ax.get_title() for ax in shown] == (
        [f"digits: {rule}" for rule in ("IID", "half-IID", "non-IID", "clustered")]
        + ["Synthetic: IID", "Synthetic: non-IID"]
    )
    places = [ax.get_subplotspec() for ax in shown]
    assert [place.rowspan.start for place in places] == [0, 0, 0, 1, 1, 1]
    assert len({ax.get_ylim() for ax in shown[:4]}) == 1
    plan = make_plan(digits | {"distributions": rules[:3]}, SYNTHETIC, algorithms=["k-means"])
    shown = [ax for ax in draw(plan, frame, ["score"]).axes if ax.axison]
    assert [ax.get_subplotspec().rowspan.start for ax in shown] == [0, 0, 0, 1, 1]


def test_metrics_without_values_are_refused_when_asked_for_and_left_out_when_not(plan):
    frame = make_frame(*TWO_NUMBERS)
    assert [ax.get_ylabel() for ax in draw(plan, frame, []).axes] == ["score:\nmean squared distance", ""]
    with pytest.raises(StudyError, match="no accuracy: the data has no labels"):
        draw(plan, frame, ["accuracy"])
    with pytest.raises(ParameterError, match="metric must be one of"):
        draw(plan, frame, ["ari"])


def test_an_empty_panel_says_so(plan):
    iid, other = draw(plan, make_frame(*TWO_NUMBERS), ["score"]).axes
    assert [text.get_text() for text in other.texts] == ["no values"]
    assert not iid.texts
    assert iid.get_xlim() == other.get_xlim()


def test_dollar_signs_are_no_formulas():
    title = r"costs $5_{ or $6"
    plan = make_plan(SYNTHETIC, algorithms=[{"name": "k-means", "title": title}], title=title)
    assert as_png(draw(plan, make_frame(POOLED), ["score"])).startswith(b"\x89PNG")


# --- score by rounds ---------------------------------------------------------------------------


CURVES = (
    "synthetic",
    "iid",
    "dwf",
    100,
    [2.0, 4.0, 9.0],
    # Out of order, and as text, as they come from a store; the third run has none.
    {"curve": [{"2": 4.0, "0": 8.0, "10": 3.0}, {"0": 6.0, "2": 5.0}, None], "rounds": [20, 3, 5]},
)


def test_curves_are_averaged_and_a_run_that_has_stopped_keeps_its_score(plan):
    curve = mean_curves(plan, make_frame(CURVES))
    assert curve["round"].tolist() == [0, 2, 3, 10, 20]
    assert set(curve["runs"]) == {2}
    # The first run is at 3.875 after three rounds: an eighth of the way from 4 to 3.
    assert curve["mean"].tolist() == [7, 4.5, (3.875 + 4) / 2, 3.5, 3]
    assert curve["std"].iloc[0] == pytest.approx(math.sqrt(2))


def test_curves_are_drawn_by_distribution_with_pooled_runs_as_a_level(plan):
    fig = draw_curves(plan, make_frame(POOLED, CURVES))
    iid, non_iid = fig.axes
    np.testing.assert_array_equal(
        line_of(iid, plan, "dwf"), [[0, 7], [2, 4.5], [3, 3.9375], [10, 3.5], [20, 3]]
    )
    assert set(line_of(iid, plan, "k-means")[:, 1]) == {2.0}
    assert [set(line.get_ydata()) for line in non_iid.get_lines()] == [{2.0}]
    assert len(bands_of(iid)) == 1
    assert iid.get_xscale() == "symlog"
    assert [tick.get_text() for tick in iid.get_xticklabels()] == ["0", "1", "10"]
    assert legend(fig) == ["k-means (pooled)", "DWF k-means"]
    assert "Mean over 2 runs" in note(fig)
    assert "100 clients per round" in note(fig)
    assert as_png(fig).startswith(b"\x89PNG")


def test_one_curve_has_no_band(plan):
    fig = draw_curves(plan, make_frame((*CURVES[:4], [2.0], {"curve": {"0": 3.0}, "rounds": 8})))
    assert not bands_of(fig.axes[0])
    assert note(fig) == "One run each; 100 clients per round"


def test_one_shot_is_a_point_as_it_has_no_start(plan):
    shot = {"curve": [{"0": 5.0, "1": 5.0}, {"0": 7.0, "1": 7.0}], "rounds": 1, "stop_reason": "one shot"}
    frame = make_frame(CURVES, ("synthetic", "iid", "kfed", 100, [5.0, 7.0], shot))
    curves = mean_curves(plan, frame).query("algorithm == 'kfed'")
    assert curves[["round", "mean"]].to_numpy().tolist() == [[1, 6]]
    assert len(bars_of(draw_curves(plan, frame).axes[0])) > 0


def test_curves_are_those_of_one_number_of_clients(plan):
    frame = make_frame(CURVES, (*CURVES[:3], 5, [1.0], {"curve": {"0": 2.0}, "rounds": 4}))
    assert mean_curves(plan, frame, 5)["mean"].tolist() == [2, 1]
    assert mean_curves(plan, frame)["mean"].iloc[0] == 7
    with pytest.raises(StudyError, match="there are runs with 5, 100"):
        draw_curves(plan, frame, 9)


def test_no_curves_are_refused(plan):
    with pytest.raises(StudyError, match="no run has a curve"):
        draw_curves(plan, make_frame(POOLED, *TWO_NUMBERS))


def test_a_study_is_drawn_from_its_store(tmp_path):
    data = {"name": "digits", "title": "Digits", "k": 3, "distributions": ["iid"]}
    plan = make_plan(data, n_clients=5, clients_per_round=[2, 5], runs=2,
                     algorithms=["k-means", "kfed", {"name": "last-word", "max_rounds": 5}])  # fmt: skip
    store = Store(tmp_path)
    run_study(plan, tasks_of(plan), store)
    frame = load_results(plan, store)
    fig = draw(plan, frame, ["accuracy"], 1)
    runs = frame[(frame["algorithm"] == "last-word") & (frame["clients_per_round"] == 5)]
    assert line_of(fig.axes[0], plan, "last-word")[-1, 1] == pytest.approx(runs["accuracy"].mean())
    fig = draw_curves(plan, frame)
    assert line_of(fig.axes[0], plan, "last-word")[-1, 1] == pytest.approx(runs["score"].mean())
    assert as_png(fig).startswith(b"\x89PNG")
