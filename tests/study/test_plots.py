import io

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from fedkmeans.errors import DataError
from fedkmeans.study.plots import (
    PALETTE,
    panels,
    plot_clients,
    plot_data,
    plot_movement,
    plot_paths,
    save_figure,
)


@pytest.fixture
def X():
    return np.random.default_rng(0).normal(size=(60, 2))


def drawn_colours(fig: Figure) -> set[tuple[int, ...]]:
    """Colours of the figure's dots, without the white ground."""
    buffer = io.BytesIO()
    fig.savefig(buffer, format="png", dpi=60)
    image = Image.open(buffer).convert("RGB")
    return {colour for _, colour in image.getcolors(image.width * image.height)} - {(255, 255, 255)}


def rgb(colour: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(colour.lstrip("#")))


def legend_texts(fig: Figure) -> list[str]:
    (legend,) = fig.legends or [ax.get_legend() for ax in fig.axes]
    return [text.get_text() for text in legend.get_texts()]


def test_data_are_drawn_in_the_colours_of_their_labels(X):
    fig = plot_data(X, np.repeat([0, 1, 7], 20), names={7: "outliers"})
    assert {rgb(colour) for colour in PALETTE[:3]} <= drawn_colours(fig)
    assert legend_texts(fig) == ["label 0 (20 rows)", "label 1 (20 rows)", "outliers (20 rows)"]


def test_one_label_and_one_row_are_enough():
    fig = plot_data(np.zeros((1, 2)), np.zeros(1, dtype=int))
    assert rgb(PALETTE[0]) in drawn_colours(fig)


def test_labels_may_be_text(X):
    assert legend_texts(plot_data(X, np.repeat(["no", "yes"], 30)))[1] == "label yes (30 rows)"


def test_many_labels_differ_by_marker_where_colours_repeat(X):
    fig = plot_data(X, np.arange(60) % 10)
    first, eighth = fig.axes[0].collections[0], fig.axes[0].collections[7]
    assert (first.get_facecolor() == eighth.get_facecolor()).all()
    assert len(first.get_paths()[0].vertices) != len(eighth.get_paths()[0].vertices)


def test_clients_get_a_panel_for_each_way(X):
    fig = plot_clients(X, {"even": np.arange(60) % 12, "cut": np.arange(60) // 5}, n_shown=3)
    assert [ax.get_title() for ax in fig.axes] == ["even", "cut"]
    assert legend_texts(fig) == ["all 12 clients", "client 0", "client 6", "client 11"]


def test_fewer_clients_than_are_to_be_shown(X):
    assert legend_texts(plot_clients(X, {"one": np.zeros(60, dtype=int)})) == ["all 1 clients", "client 0"]


@pytest.mark.parametrize("shape", [(1, 1), (2, 1), (30, 9)])
def test_paths_are_drawn_from_start_to_end(X, shape):
    path = np.random.default_rng(1).normal(size=(*shape, 2))
    fig = plot_paths(X, {"run": path}, reference=path[-1])
    lines = [line.get_xydata() for line in fig.axes[0].get_lines()]
    np.testing.assert_array_equal(lines, path.transpose(1, 0, 2))
    assert legend_texts(fig) == ["start", "end", "k-means on the pooled data"]
    assert drawn_colours(fig)


def test_paths_tint_the_rows_by_client(X):
    fig = plot_paths(X, {"run": np.zeros((2, 1, 2))}, clients=np.repeat([0, 1], 30))
    rows = fig.axes[0].collections[0].get_facecolor()
    assert len(np.unique(rows[:30], axis=0)) == len(np.unique(rows[30:], axis=0)) == 1
    assert (rows[0] != rows[-1]).any()


def test_movements_are_drawn_against_the_round():
    fig = plot_movement({"IID": {"DWF": np.array([1.0, 0.1, 0.01])}}, tol=1e-3)
    run, tolerance = fig.axes[0].get_lines()
    np.testing.assert_array_equal(run.get_xydata(), [[1, 1.0], [2, 0.1], [3, 0.01]])
    assert set(tolerance.get_ydata()) == {1e-3}
    assert fig.axes[0].get_yscale() == fig.axes[0].get_xscale() == "log"


def test_the_end_of_each_run_is_marked():
    fig = plot_movement({"IID": {"DWF": np.array([1.0, 0.1, 0.0]), "k-FED": np.array([np.nan])}})
    run, one_shot = fig.axes[0].get_lines()
    assert (run.get_marker(), run.get_markevery()) == ("o", [1])  # the last round that moved anything
    assert one_shot.get_markevery() == []
    assert rgb(PALETTE[0]) in drawn_colours(fig)


def test_movements_that_no_logarithm_has_are_left_out():
    fig = plot_movement({"IID": {"DWF": np.array([1.0, 0.0, np.nan, 0.5]), "k-FED": np.array([np.nan])}})
    run, one_shot = fig.axes[0].get_lines()
    np.testing.assert_array_equal(run.get_xydata(), [[1, 1.0], [4, 0.5]])
    assert len(one_shot.get_xydata()) == 0
    assert drawn_colours(fig)


def test_runs_share_colour_by_group_and_line_by_name():
    history = np.array([1.0, 0.1])
    fig = plot_movement({"IID": {"EWF": history, "DWF": history}, "non-IID": {"EWF": history}})
    a, b, c = fig.axes[0].get_lines()
    assert a.get_color() == b.get_color() != c.get_color()
    assert a.get_linestyle() == c.get_linestyle() != b.get_linestyle()


def test_panels_stand_in_a_grid(X):
    fig, axes = panels(X, ["a", "b", "c"], n_columns=2)
    assert [ax.axison for ax in fig.axes] == [True, True, True, False]
    assert [ax.get_title() for ax in axes] == ["a", "b", "c"]


@pytest.mark.parametrize("bad", [np.zeros((5, 3)), np.zeros(5), np.zeros((0, 2))])
def test_what_is_no_plane_is_refused(bad):
    with pytest.raises(DataError, match="rows of two columns"):
        plot_data(bad, np.zeros(len(bad), dtype=int))


def test_nothing_to_draw_is_refused(X):
    for draw in (lambda: panels(X, []), lambda: plot_paths(X, {}), lambda: plot_clients(X, {})):
        with pytest.raises(DataError, match="at least one panel"):
            draw()


def test_figures_are_saved_by_their_ending(X, tmp_path):
    fig = plot_data(X, np.zeros(60, dtype=int))
    assert save_figure(fig, tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in save_figure(fig, tmp_path / "a.svg").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "a.svg"]


def test_a_figure_of_no_known_kind_leaves_the_old_file_alone(X, tmp_path):
    old = tmp_path / "a.docx"
    old.write_text("old")
    with pytest.raises(DataError, match=r"'\.docx'.*end the name in \.png"):
        save_figure(plot_data(X, np.zeros(60, dtype=int)), old)
    assert old.read_text() == "old"


def test_drawing_needs_no_pyplot():
    import subprocess
    import sys

    code = (
        "import sys, fedkmeans.study.plots; assert 'matplotlib' not in sys.modules\n"
        "import numpy as np; fedkmeans.study.plots.plot_data(np.zeros((2, 2)), np.zeros(2, dtype=int))\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
