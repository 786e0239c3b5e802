"""Commands and snippets in the documents work, in their order."""

from __future__ import annotations

import pkgutil
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
WIDTH = 100
# Lines that may be longer: tables, HTML, and lines with only one link.
WIDE = re.compile(r"\s*([|<]|[-*:]?\s*!?\[[^\]]*\]\([^)]*\)\W*$|[-*:]?\s*<?https?:\S+$)")


def blocks(page, language):
    found = [code for kind, code in FENCE.findall((ROOT / page).read_text()) if kind == language]
    assert found, f"{page} has no block of {language or 'commands'}"
    return found


def commands(page):
    lines = [line.strip() for block in blocks(page, "") for line in block.splitlines()]
    return [line for line in lines if line.startswith("fedkmeans ")]


def run(line, cwd):
    words = [sys.executable, "-m", "fedkmeans", *shlex.split(line, comments=True)[1:]]
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("page", ["README.md", "docs/how-to/compare.md", "docs/how-to/kernels.md"])
def test_python_snippets_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for code in blocks(page, "python"):
        exec(compile(code, page, "exec"), {})
    assert capsys.readouterr().out


@pytest.mark.parametrize("page", ["docs/how-to/few-clients.md", "docs/how-to/empty-clusters.md"])
def test_fragments_are_estimators_that_can_be_fitted(page):
    from fedkmeans import FederatedKMeans

    made = []
    for code in blocks(page, "python"):
        if not code.startswith("--8<--"):  # an example, which has its own tests
            made += [eval(line, {"FederatedKMeans": FederatedKMeans}) for line in code.splitlines() if line]
    assert made
    X = np.random.default_rng(0).normal(size=(400, 2))
    for model in made:
        model.set_params(max_rounds=2, random_state=0).fit(X, clients=np.arange(400) % 20)


def test_numbers_of_rounds_in_few_clients():
    from fedkmeans import FederatedKMeans
    from fedkmeans.data import load_synthetic, partition

    data = load_synthetic()
    clients = partition("non-iid", data.X, data.y, 100, np.random.default_rng(0))
    for settings, rounds in (
        ({}, 60),
        ({"memory": "client"}, 60),
        ({"memory": 0.98}, 380),
        ({"participation": "random"}, 185),
    ):
        model = FederatedKMeans(5, clients_per_round=10, random_state=0, **settings)
        model.fit(data.X, clients=clients)
        assert 0.8 * rounds < model.n_iter_ < 1.25 * rounds
        assert model.score_per_sample_ < 0.07445


def test_commands_in_few_clients(tmp_path):
    run("fedkmeans partition --dataset digits --how iid --n-clients 12 --out clients", tmp_path)
    from fedkmeans.model import Model

    algorithms = []
    for line in commands("docs/how-to/few-clients.md"):
        run(f"{line} --max-rounds 30 --label label --force", tmp_path)
        card = Model.load(tmp_path / "model").card
        assert card["parameters"]["clients_per_round"] == 10
        algorithms.append(card["algorithm"])
    assert algorithms == ["last-word", "dwf"]


def test_the_tutorial_from_beginning_to_end(tmp_path, monkeypatch):
    typed = commands("docs/tutorial.md")
    assert len(typed) >= 6
    for line in typed:
        run(line, tmp_path)
    monkeypatch.chdir(tmp_path)
    (code,) = blocks("docs/tutorial.md", "python")
    names: dict[str, object] = {}
    exec(compile(code, "tutorial", "exec"), names)
    from fedkmeans.model import Model

    saved = Model.load("model")
    np.testing.assert_array_equal(saved.centroids, names["model"].cluster_centers_)


def test_commands_of_the_readme_on_the_hospital_files(tmp_path, real_data):
    for hospital in ("cleveland", "hungarian", "switzerland", "va"):
        source = real_data / "heart-disease" / f"processed.{hospital}.data"
        (tmp_path / f"{hospital}.csv").write_bytes(source.read_bytes())
    for line in commands("README.md"):
        run(line, tmp_path)
    assert "cluster" in (tmp_path / "cleveland-clusters.csv").read_text().splitlines()[0]


def test_links_and_pictures_between_documents_exist():
    pages = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    for page in pages:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name} points to {target}"


def prose(text):
    """Lines of text with their numbers, without code and lines that may be longer."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        fenced ^= line.lstrip().startswith("```")
        if not fenced and not WIDE.match(line):
            yield number, line


def test_prose_leaves_out_code_and_tables():
    long = "word " * 30
    wide = [f"| {long} |", f"<p>{long}", f"- [{long}](page.md).", f"https://{'a' * 100}"]
    text = "\n".join(["# Title", long, "```", long, "```", *wide])
    assert [number for number, line in prose(text) if len(line) > WIDTH] == [2]


def test_lines_of_prose_are_short():
    pages = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    # Results are written by studies.
    pages = [page for page in pages if "results" not in page.parts]
    too_long = [
        f"{page.relative_to(ROOT)}:{number}: {len(line)} characters"
        for page in pages
        for number, line in prose(page.read_text(encoding="utf-8"))
        if len(line) > WIDTH
    ]
    assert not too_long, "\n".join(too_long)


def test_reference_pages_name_what_exists():
    pages = (ROOT / "docs/reference").glob("*.md")
    names = [line[4:] for page in pages for line in page.read_text().splitlines() if line.startswith("::: ")]
    assert len(names) > 20
    for name in names:
        assert pkgutil.resolve_name(name) is not None
