"""What a study's page says, before a browser draws it."""

import base64
import io
import json
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from fedkmeans.errors import DataError
from fedkmeans.study.page import content
from fedkmeans.study.page import study as head
from fedkmeans.study.page.content import ends, matched, strip, view_of
from fedkmeans.study.page.study import page, script_json, write_report
from tests.study.studies import K, make_study

pytestmark = pytest.mark.slow

EVIL = "</script><script>alert(1)</script>&amp;"


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return make_study(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="module")
def found(study):
    """What the page of the study shows."""
    return content.page_content(*study)


@pytest.fixture(scope="module")
def text(study):
    """The page of the study."""
    return page(*study)


class Elements(HTMLParser):
    """The tags of a page with their attributes, and the text of the data block."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.data = ""
        self._in_data = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._in_data = tag == "script" and dict(attrs).get("id") == "data"

    def handle_endtag(self, tag):
        self._in_data = False

    def handle_data(self, data):
        if self._in_data:
            self.data += data


# --- content -----------------------------------------------------------------------------------


def test_tables_have_the_papers_values_where_all_clients_take_part(found):
    tables = found["tables"]["all"]["score"]
    assert set(tables) == {"2", "4"}
    assert all(row["paper_mean"] is None for row in tables["2"])
    row = next(row for row in tables["4"] if row["place"] == 1 and row["algorithm"] == 2)
    assert row["paper_mean"] == 35.4158
    assert row["off_by_std"] > 3
    assert row["runs"] == 3
    assert {row["runs"] for row in found["tables"]["half"]["score"]["4"]} == {2}


def test_averages_of_the_best_half_and_of_all(study, found):
    def point(share):
        wanted = {"place": 0, "algorithm": 1, "clients": 4}
        return next(p for p in found["averages"][share]["score"] if wanted.items() <= p.items())

    frame = study[1]
    mine = frame[(frame["algorithm"] == "dwf") & (frame["distribution"] == "iid")]
    scores = mine.loc[mine["clients_per_round"] == 4, "score"].sort_values()
    assert point("all") == {
        "place": 0, "algorithm": 1, "clients": 4, "runs": 3, "of": 3,
        "mean": pytest.approx(scores.mean(), rel=1e-6), "std": pytest.approx(scores.std(), rel=1e-6),
    }  # fmt: skip
    assert point("half")["runs"] == 2
    assert point("half")["mean"] == pytest.approx(scores[:2].mean(), rel=1e-6)


def test_pooled_runs_have_a_point_in_every_distribution(found):
    pooled = [point for point in found["averages"]["all"]["score"] if point["algorithm"] == 0]
    assert [(point["place"], point["clients"]) for point in pooled] == [(0, None), (1, None)]


def test_cells_count_why_runs_stopped(study, found):
    cells = found["cells"]
    assert len(cells) == 1 + 2 * 2 * 2
    assert cells[0] | {"seconds": None} == {
        "data": 0, "place": None, "algorithm": 0, "clients": None, "runs": 3,
        "stops": {"tol": 3}, "rounds": [40.0, 40, 40], "seconds": None,
    }  # fmt: skip
    assert {"one shot": 3} in [cell["stops"] for cell in cells]
    assert sum(cell["seconds"][1] for cell in cells) == pytest.approx(study[1]["seconds"].sum())


def test_curves_are_in_order_and_end_with_the_last_round(study):
    plan, frame, _ = study
    curve = content.curves(frame, content.group_runs(plan, frame))[0]
    assert curve["round"] == [0, 1, 2, 10, 40]
    assert curve["score"][0] == 36.0
    assert curve["score"][-1] == frame.loc[frame["algorithm"] == "dwf", "score"].iloc[0]
    assert content.tidy(curve["movement"]) == [None, None, 0.1, 0.0, None]


def test_one_shot_has_no_start(study):
    plan, frame, _ = study
    groups = content.group_runs(plan, frame)
    one_shot = [number for number, cell in enumerate(groups) if cell.algorithm == 2]
    assert {tuple(c["round"]) for c in content.curves(frame, groups) if c["cell"] in one_shot} == {(1,)}


def test_runs_are_columns_that_belong_together(study, found):
    runs = found["runs"]
    assert runs["of"] == len(runs["cell"]) == len(runs["seed"]) == len(study[1])
    assert runs["seed"] == [1000 + run for run in runs["run"]]


def test_of_very_many_runs_those_of_the_lowest_numbers_are_shown(study, monkeypatch):
    plan, frame, _ = study
    monkeypatch.setattr(content, "MOST_RUNS", 10)
    runs = content.runs(frame, content.group_runs(plan, frame), ["score"])
    assert len(runs["run"]) == 10
    assert runs["of"] == len(frame)
    assert runs["run"].count(0) == 9  # one of each cell, and one more run


def test_one_run_has_no_spread(tmp_path):
    plan, frame, centroids = make_study(tmp_path, runs=1)
    found = content.page_content(plan, frame, centroids)
    assert {row["std"] for row in found["tables"]["all"]["score"]["4"]} == {None}
    assert {point["std"] for point in found["averages"]["half"]["score"]} == {None}


def test_without_labels_there_is_the_score_only(tmp_path):
    plan, frame, centroids = make_study(tmp_path, labels=False)
    found = content.page_content(plan, frame, centroids)
    assert [metric["name"] for metric in found["metrics"]] == ["score"]
    for shown in (*found["tables"].values(), *found["averages"].values()):
        assert set(shown) == {"score"}
    assert "accuracy" not in found["runs"]


def test_pooled_runs_alone_make_a_page(tmp_path):
    plan, frame, centroids = make_study(tmp_path, algorithms=({"name": "k-means"},))
    found = content.page_content(plan, frame, centroids)
    assert found["clients"] == []
    assert set(found["tables"]["all"]["score"]) == {"none"}
    assert found["curves"] == []


def test_data_sets_of_several_titles_are_told_apart(tmp_path):
    others = (
        {},
        {"name": "more", "load": "digits", "title": "More", "k": 3, "paper": None, "distributions": ["iid"]},
    )
    found = content.page_content(*make_study(tmp_path, data=others))
    assert [place["label"] for place in found["places"]] == ["Digits, IID", "Digits, non-IID", "More, IID"]
    pooled = [point for point in found["averages"]["all"]["score"] if point["algorithm"] == 0]
    assert pooled[0]["mean"] == pooled[1]["mean"] != pooled[2]["mean"]
    assert [cell["data"] for cell in found["cells"] if cell["place"] is None] == [0, 1]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (float("nan"), None),
        (np.float32("inf"), None),
        (pd.NA, None),
        (pd.NaT, None),
        (1 / 3, 0.3333333),
        (np.int64(2023), 2023),
        (1_430_868_719, 1_430_868_719),
        ({"a": (1.0, np.nan, "x", True, None)}, {"a": [1.0, None, "x", True, None]}),
    ],
)
def test_tidy_makes_what_json_knows(value, expected):
    assert content.tidy(value) == expected
    assert json.loads(script_json(content.tidy(value))) == expected


# --- centroids ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "view"),
    [(2, "plane"), (1, "table"), (49, "table"), (50, "table"), (51, "none"), (64, "images"), (784, "images")],
)
def test_how_centroids_are_looked_at(columns, view):
    assert view_of(columns) == view


def test_centroids_stand_where_those_of_the_reference_stand():
    rng = np.random.default_rng(0)
    reference = rng.normal(size=(6, 3))
    order = rng.permutation(6)
    np.testing.assert_array_equal(matched(reference[order], reference), reference)
    np.testing.assert_array_equal(matched(reference[:5], reference), reference[:5])
    assert matched(np.full((6, 3), np.nan), reference).shape == (6, 3)


def test_what_most_pixels_are_is_paper():
    assert ends([np.array([[0.0, 0.1], [0.2, 1.0]])]) == (0.0, 1.0)
    assert ends([np.array([[0.9, 1.0], [0.8, np.nan]]), np.array([[0.0, 0.9]])]) == (1.0, 0.0)


def test_a_strip_has_a_shade_for_each_value():
    shades = np.linspace(0, 1, 64)
    source = strip(np.array([[0.0] * 64, [1.0] * 64, [np.nan] * 64, shades, 2 - shades]), 0.0, 1.0)
    assert source.startswith("data:image/png;base64,")
    with Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2]))) as opened:
        assert opened.mode == "L"
        pixels = np.asarray(opened).reshape(5, 64)
    assert [set(picture.tolist()) for picture in pixels[:3]] == [{255}, {0}, {255}]
    np.testing.assert_array_equal(pixels[3], np.rint(255 * (1 - shades)))
    assert set(pixels[4].tolist()) == {0}  # beyond the ends


@pytest.mark.parametrize(("columns", "kind"), [(64, "images"), (2, "plane"), (5, "table"), (60, "none")])
def test_centroids_of_the_first_runs(tmp_path, columns, kind):
    plan, frame, centroids = make_study(tmp_path, columns=columns)
    found = content.page_content(plan, frame, centroids)
    assert found["data"][0]["view"]["kind"] == kind
    assert len(found["centroids"]) == (0 if kind == "none" else len(found["cells"]))
    for shown in found["centroids"].values():
        assert shown.startswith("data:image/png") if kind == "images" else np.shape(shown) == (K, columns)


def test_no_centroids(study):
    plan, frame, _ = study
    found = content.page_content(plan, frame, {})
    assert found["data"][0]["view"] == {"kind": "missing"}
    assert found["centroids"] == {}


# --- head --------------------------------------------------------------------------------------


def test_the_head_says_what_was_run(study):
    plan, frame, _ = study
    found = dict(head.facts(plan, frame))
    assert found["Data"] == "Digits: 1,797 rows of 64 columns, k = 4, IID and non-IID"
    assert found["Clients"] == "4; 2 or 4 per round"
    assert found["Runs"] == "27 of 27 done (3 of each combination)"
    assert found["Last run"] == "2026-11-15 20:58:26 UTC"
    assert found["Computing time"] == "1 min 34 s"
    assert found["Versions"] == "fedkmeans 0.1.0, python 3.11.7, numpy 2.0.0"


def test_more_and_fewer_runs_than_planned(study):
    plan, frame, _ = study
    assert dict(head.facts(plan, frame[frame["run"] > 0]))["Runs"].startswith("18 of 27 done")
    more = frame.assign(run=frame["run"] + 1)
    assert dict(head.facts(plan, more))["Runs"].endswith("and 9 more")


def test_data_that_comes_divided(tmp_path):
    wards = {"distributions": None, "distribution": "wards"}
    found = dict(head.facts(*make_study(tmp_path, data=(wards,))[:2]))
    assert found["Data"] == "Digits: 1,797 rows of 64 columns, k = 4, with its own clients (wards)"
    assert found["Clients"] == "those of the data; 2 or 4 per round"


def test_commands_name_the_plan_and_no_folder_elsewhere(study, monkeypatch):
    plan, *_ = study
    assert head.commands(plan)[1] == "fedkmeans study run digits-study.toml"
    monkeypatch.chdir(plan.folder.parent)
    assert head.commands(plan)[1] == f"fedkmeans study run {plan.folder.name}/digits-study.toml"


@pytest.mark.parametrize(
    ("seconds", "text"), [(4.24, "4.2 s"), (200, "3 min 20 s"), (7500, "2 h 05 min"), (4e6, "1,111 h 06 min")]
)
def test_duration(seconds, text):
    assert head.duration(seconds) == text


# --- page --------------------------------------------------------------------------------------


def test_the_page_refers_to_nothing_else(text):
    elements = Elements(text)
    for tag, attributes in elements.tags:
        assert tag not in ("link", "iframe", "object", "embed", "img", "base", "form")
        for name, value in attributes.items():
            assert name not in ("src", "href", "srcset", "action", "data", "poster")
            assert not name.startswith("on")
            assert not re.search("https?:|url\\(", value or "")
    (policy,) = [
        a["content"]
        for t, a in elements.tags
        if t == "meta" and a.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy.startswith("default-src 'none';")
    assert "http" not in policy
    assert "eval" not in policy


def test_style_and_script_of_our_own_load_nothing(text):
    own = text.replace(text[text.index("<script>") : text.index('<script type="application/json"')], "")
    for found in re.findall(r"https?://[^\s\"'<]*", own):
        assert found == "http://www.w3.org/2000/svg"  # a name, not an address
    assert "url(" not in own
    assert "@import" not in own


def test_plotly_is_in_the_page_once(text):
    assert text.count("* plotly.js v") == 1


def test_texts_of_a_plan_are_only_texts(tmp_path):
    algorithms = ({"name": "dwf", "title": EVIL}, {"name": "b" + EVIL, "algorithm": "kfed"})
    plan, frame, centroids = make_study(tmp_path, title=EVIL, data=({"title": EVIL},), algorithms=algorithms)
    text = page(plan, frame, centroids)
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)" in text
    found = json.loads(Elements(text).data)
    assert found["algorithms"][0]["title"] == EVIL
    assert found["data"][0]["title"] == EVIL


def test_dollars_and_braces_in_a_title_stay(tmp_path):
    assert "<title>cost in $title and ${data}</title>" in page(
        *make_study(tmp_path, title="cost in $title and ${data}")
    )


def test_the_data_block_is_json_without_nan(text, found):
    assert json.loads(Elements(text).data, parse_constant=pytest.fail) == found


def test_the_file_is_there_whole_or_not_at_all(study, tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    write_report(*study, path)
    assert path.read_text(encoding="utf-8").rstrip().endswith("</html>")
    before = path.read_bytes()
    monkeypatch.setattr("fedkmeans.study.page.study.page", lambda *parts: "\ud800")  # cannot be written
    with pytest.raises(UnicodeEncodeError):
        write_report(*study, path)
    assert path.read_bytes() == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["report.html"]


def test_a_folder_that_is_not_there(study, tmp_path):
    with pytest.raises(DataError, match="cannot write"):
        write_report(*study, tmp_path / "no" / "report.html")
