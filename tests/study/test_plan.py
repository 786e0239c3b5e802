"""Plans: the studies of the package load, and what cannot be is refused with file, entry and remedy."""

from pathlib import Path

import numpy as np
import pytest

from fedkmeans.errors import StudyError
from fedkmeans.study import load_plan, parse_plan, tasks_of
from fedkmeans.study.plan import check_rule

STUDIES = sorted((Path(__file__).parents[2] / "studies").glob("*.toml"))
DATA = '[[data]]\nname = "digits"\nk = 10\ndistributions = ["iid"]\n'
FILES = '[[data]]\nname = "wards"\nfiles = ["a.csv", "b.csv"]\nk = 3\n'
DWF = '[[algorithm]]\nname = "dwf"\n'


@pytest.fixture
def load(tmp_path):
    def load_(text):
        path = tmp_path / "plan.toml"
        path.write_text(text, encoding="utf-8")
        return load_plan(path)

    return load_


@pytest.fixture
def refused(load):
    """Load a plan that cannot be; returns what is said after the file's name."""

    def refused_(text):
        with pytest.raises(StudyError) as caught:
            load(text)
        message = str(caught.value)
        assert "plan.toml'" in message
        assert "\n" not in message
        return message.partition("plan.toml'")[2]

    return refused_


# --- what can be -------------------------------------------------------------------------------


def test_there_are_studies():
    assert {"quick", "paper-mnist", "paper-synthetic", "paper-femnist"} <= {path.stem for path in STUDIES}


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_the_studies_of_the_package_load(path):
    plan = load_plan(path)
    assert plan.name == path.stem
    assert plan.title != plan.name
    assert plan.folder == path.parent
    assert len(tasks_of(plan)) >= plan.runs * len(plan.algorithms)


def test_what_a_plan_does_not_say(load):
    plan = load('[[data]]\nname = "digits"\nk = 10\n' + DWF)
    assert (plan.name, plan.title, plan.seed, plan.runs) == ("plan", "plan", 0, 10)
    assert (plan.n_clients, plan.clients_per_round, plan.min_cluster_size) == (100, (100,), 2)
    (data,), (algorithm,) = plan.data, plan.algorithms
    assert (data.title, data.load, data.files, data.reading, data.paper) == ("digits", "digits", (), (), None)
    assert [(one.name, one.rule) for one in data.distributions] == [("own", None)]
    assert (algorithm.title, algorithm.algorithm, algorithm.parameters) == ("DWF k-means", "dwf", {})


def test_what_a_plan_says(load):
    plan = load(
        """
        name = "mine"
        title = "My study"
        seed = 7
        runs = 3
        n_clients = 12
        clients_per_round = 4
        min_cluster_size = 1

        [[data]]
        name = "a"
        title = "A"
        load = "digits"
        k = 5
        distributions = ["iid", {rule = "dirichlet", alpha = 0.3}, {rule = "label-mix", p = 1, name = "mix"}]

        [[data]]
        name = "wards"
        files = ["a.csv"]
        distribution = "by ward"
        k = 2
        label = "kind"
        drop = ["id", "date"]
        header = true
        missing = "drop_rows"

        [[algorithm]]
        name = "few"
        algorithm = "dwf"
        max_rounds = 20

        [[algorithm]]
        name = "k-means"
        title = "Pooled"
        n_init = 3
        """
    )
    assert (plan.name, plan.title, plan.seed, plan.runs) == ("mine", "My study", 7, 3)
    assert (plan.n_clients, plan.clients_per_round, plan.min_cluster_size) == (12, (4,), 1)
    assert [one.name for one in plan.data[0].distributions] == ["iid", "dirichlet (alpha = 0.3)", "mix"]
    assert plan.data[0].distributions[1].options == (("alpha", 0.3),)
    assert plan.data[1].distributions[0].name == "by ward"
    assert dict(plan.data[1].reading) == {
        "label": "kind",
        "drop": ("id", "date"),
        "missing": "drop_rows",
        "header": True,
    }
    few, pooled = plan.algorithms
    assert (few.title, few.algorithm, few.parameters, few.is_pooled) == (
        "few",
        "dwf",
        {"max_rounds": 20},
        False,
    )
    assert (pooled.title, pooled.is_pooled) == ("Pooled", True)


def test_names_and_titles_may_be_in_any_language(load):
    plan = load('title = "Größe × 高さ"\n' + DATA + DWF)
    assert plan.title == "Größe × 高さ"


# --- what cannot be ----------------------------------------------------------------------------

OTHER = '[[data]]\nload = "digits"\nname = "d"\nk = 10\n'

WRONG = {
    # the plan itself
    "a key that there is not": ("rnus = 3\n" + DATA + DWF, ["the plan", "rnus", "takes", "runs"]),
    "no data": (DWF, ["at least one [[data]]"]),
    "no algorithm": (DATA, ["at least one [[algorithm]]"]),
    "one table for many": (DATA.replace("[[data]]", "[data]") + DWF, ["at least one [[data]]"]),
    "data that is a number": ("data = 3\n" + DWF, ["at least one [[data]]"]),
    "runs as text": ('runs = "3"\n' + DATA + DWF, ["runs", "whole number", "'3'"]),
    "runs as a truth": ("runs = true\n" + DATA + DWF, ["runs", "whole number", "True"]),
    "no runs": ("runs = 0\n" + DATA + DWF, ["runs", "at least 1"]),
    "a negative seed": ("seed = -1\n" + DATA + DWF, ["seed", "at least 0"]),
    "half a client": ("n_clients = 2.5\n" + DATA + DWF, ["n_clients", "whole number", "2.5"]),
    "clusters of no rows": ("min_cluster_size = 0\n" + DATA + DWF, ["min_cluster_size", "at least 1"]),
    "a title that is a number": ("title = 3\n" + DATA + DWF, ["title", "text", "3"]),
    "an empty title": ('title = " "\n' + DATA + DWF, ["title", "text"]),
    "a name that leads elsewhere": ('name = "../x"\n' + DATA + DWF, ["'../x'", "folder", "slashes"]),
    "a name that is a folder": ('name = ".."\n' + DATA + DWF, ["'..'", "folder"]),
    # clients per round
    "nobody per round": (
        "clients_per_round = []\n" + DATA + DWF,
        ["clients_per_round is empty", "one number"],
    ),
    "a truth of clients": ("clients_per_round = [true]\n" + DATA + DWF, ["clients_per_round", "True"]),
    "twice as many": ("clients_per_round = [5, 5]\n" + DATA + DWF, ["clients_per_round", "5", "twice"]),
    "clients as text": ('clients_per_round = "all"\n' + DATA + DWF, ["clients_per_round", "'all'"]),
    "more clients than there are": (
        "n_clients = 10\nclients_per_round = [5, 11]\n" + DATA + DWF,
        ["clients_per_round", "11", "digits", "n_clients = 10", "lower", "raise"],
    ),
    # data
    "a key that data has not": (DATA + "kk = 3\n" + DWF, ["[[data]] number 1", "kk", "distributions"]),
    "no k": ('[[data]]\nname = "digits"\n' + DWF, ["[[data]] number 1", "digits", "k = 5"]),
    "no clusters": (DATA.replace("k = 10", "k = 0") + DWF, ["[[data]] number 1", "k must", "at least 1"]),
    "k as a truth": (DATA.replace("k = 10", "k = true") + DWF, ["[[data]] number 1", "k must", "True"]),
    "data unheard of": (
        DATA + '[[data]]\nname = "x"\nk = 3\n' + DWF,
        ["[[data]] number 2", "no data set 'x'", "mnist-10k", "files"],
    ),
    "data without a name": ("[[data]]\nk = 3\n" + DWF, ["[[data]] number 1", "no data set None", "digits"]),
    "a list to load": ('[[data]]\nload = ["digits"]\nk = 3\n' + DWF, ["[[data]] number 1", "no data set"]),
    "files and load": (FILES + 'load = "digits"\n' + DWF, ["[[data]] number 1", "both load and files"]),
    "one file": (
        FILES.replace('["a.csv", "b.csv"]', '"a.csv"') + DWF,
        ["number 1", "files", "list", "'a.csv'"],
    ),
    "no files": (FILES.replace('["a.csv", "b.csv"]', "[]") + DWF, ["number 1", "files is empty", "name"]),
    "files that are numbers": (FILES.replace('"a.csv"', "1") + DWF, ["number 1", "files", "list of names"]),
    "files without a name": (FILES.replace('name = "wards"\n', "") + DWF, ["number 1", "files need a name"]),
    "a label that is a number": (FILES + "label = 3\n" + DWF, ["number 1", "label", "text", "3"]),
    "columns that are one": (FILES + 'columns = "age"\n' + DWF, ["number 1", "columns", "list", "'age'"]),
    "a table to drop": (FILES + "drop = {a = 1}\n" + DWF, ["number 1", "drop", "list of names"]),
    "a rule that there is not": (FILES + 'missing = "mean"\n' + DWF, ["number 1", "missing", "drop_rows"]),
    "a header called yes": (FILES + 'header = "yes"\n' + DWF, ["number 1", "header", "true or false"]),
    "how to read what is no file": (DATA + 'label = "y"\n' + DWF, ["number 1", "label", "leave it out"]),
    "another paper": (DATA + 'paper = "cifar"\n' + DWF, ["number 1", "paper", "mnist", "'cifar'"]),
    "the same data twice": (DATA + DATA + DWF, ["[[data]]", "digits", "twice", "rename"]),
    "data whose name is a number": (
        DATA.replace('name = "digits"', 'name = 3\nload = "digits"') + DWF,
        ["number 1", "name", "text", "3"],
    ),
    # distributions
    "no distributions": (OTHER + "distributions = []\n" + DWF, ["number 1", "distributions", "list", "[]"]),
    "one distribution": (OTHER + 'distributions = "iid"\n' + DWF, ["number 1", "distributions", "list"]),
    "an unknown one": (OTHER + 'distributions = ["idd"]\n' + DWF, ["number 1", "half-iid", "'idd'"]),
    "a number": (OTHER + "distributions = [3]\n" + DWF, ["number 1", "distribution", "name or a table"]),
    "no rule": (OTHER + "distributions = [{alpha = 1}]\n" + DWF, ["number 1", "rule", "dirichlet"]),
    "the same twice": (OTHER + 'distributions = ["iid", "iid"]\n' + DWF, ["number 1", "iid", "twice"]),
    "an option too few": (
        OTHER + 'distributions = ["dirichlet"]\n' + DWF,
        ["number 1", 'rule = "dirichlet", alpha = 0.5'],
    ),
    "an option too many": (
        OTHER + 'distributions = [{rule = "iid", alpha = 1}]\n' + DWF,
        ["number 1", "distribution iid", "alpha", "takes nothing"],
    ),
    "an option of another": (
        OTHER + 'distributions = [{rule = "label-mix", p = 0.5, alpha = 1}]\n' + DWF,
        ["number 1", "alpha", "takes p"],
    ),
    "an option that is a truth": (
        OTHER + 'distributions = [{rule = "label-mix", p = true}]\n' + DWF,
        ["number 1", "label-mix needs a number"],
    ),
    "an option out of range": (
        OTHER + 'distributions = [{rule = "label-mix", p = 1.5}]\n' + DWF,
        ["number 1", "p must lie between 0 and 1", "1.5"],
    ),
    "an option that is no number": (
        OTHER + 'distributions = [{rule = "dirichlet", alpha = nan}]\n' + DWF,
        ["number 1", "alpha", "finite"],
    ),
    "its own and dealt out": (DATA + 'distribution = "own"\n' + DWF, ["number 1", "both", "leave one out"]),
    # algorithms
    "an algorithm without a name": (
        DATA + '[[algorithm]]\nalgorithm = "dwf"\n',
        ["[[algorithm]] number 1", 'name = "dwf"'],
    ),
    "an algorithm unheard of": (
        DATA + DWF + '[[algorithm]]\nname = "dwff"\n',
        ["[[algorithm]] number 2", "last-word", "'dwff'"],
    ),
    "an algorithm twice": (DATA + DWF + DWF, ["[[algorithm]]", "dwf", "twice", "rename"]),
    "a parameter that there is not": (
        DATA + DWF + "rate = 1\n",
        ["number 1", "rate", "dwf", "learning_rate"],
    ),
    "what makes it another": (DATA + DWF + 'weighting = "equal"\n', ["number 1", "weighting", "'dwf'"]),
    "a value that cannot be": (DATA + DWF + "learning_rate = 2\n", ["number 1", "learning_rate", "(0, 1]"]),
    "a truth for a number": (
        DATA + DWF + "max_rounds = true\n",
        ["number 1", "max_rounds", "number", "true"],
    ),
    "a truth for scikit-learn": (
        DATA + '[[algorithm]]\nname = "k-means"\nn_init = true\n',
        ["number 1", "n_init", "number", "true"],
    ),
    "a value for scikit-learn": (
        DATA + '[[algorithm]]\nname = "k-means"\ntol = "small"\n',
        ["number 1", "tol", "float", "'small'"],
    ),
    "a memory of another": (
        DATA + '[[algorithm]]\nname = "last-word"\nmemory = 0.9\n',
        ["number 1", "memory", "'forgetting'"],
    ),
    "a weighting unheard of": (
        DATA + '[[algorithm]]\nname = "wf"\nweighting = "mine"\n',
        ["number 1", "weighting", "dynamic", "'mine'"],
    ),
}
WRONG |= {
    f"{key}, which is the study's": (DATA + DWF + f"{key} = 1\n", ["number 1", key, "dwf", "leave it out"])
    for key in ("n_clusters", "clients_per_round", "random_state", "n_jobs", "score_every")
}


@pytest.mark.parametrize(("text", "parts"), WRONG.values(), ids=WRONG)
def test_a_wrong_entry_is_named_with_the_remedy(refused, text, parts):
    message = refused(text)
    for part in parts:
        assert part in message


def test_data_that_comes_divided_may_have_any_number_of_clients(load):
    """How many there are is seen when the rows are read."""
    plan = load("n_clients = 10\nclients_per_round = [500]\n" + OTHER + DWF)
    assert plan.clients_per_round == (500,)


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"runs = ", "is not TOML"), (b'title = "\xff"', "UTF-8"), (b"\x89PNG\r\n\x00", "UTF-8")],
)
def test_files_that_are_no_plan(tmp_path, content, words):
    (tmp_path / "x.toml").write_bytes(content)
    with pytest.raises(StudyError, match=r"x\.toml' .*" + words):
        load_plan(tmp_path / "x.toml")


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(StudyError, match=r"no\.toml': No such file or directory; check the path"):
        load_plan(tmp_path / "no.toml")
    with pytest.raises(StudyError, match="Is a directory; check the path"):
        load_plan(tmp_path)


def test_a_plan_that_is_no_file(tmp_path):
    table = {"data": [{"name": "digits", "k": 3}], "algorithm": [{"name": "dwf"}]}
    plan = parse_plan(table, "mine", tmp_path)
    assert (plan.name, plan.folder) == ("mine", tmp_path)
    with pytest.raises(StudyError, match="the plan knows no x"):
        parse_plan(table | {"x": 1}, "mine", tmp_path)


def test_the_folder_is_found_from_anywhere(load, tmp_path, monkeypatch):
    load(DATA + DWF)
    monkeypatch.chdir(tmp_path)
    assert load_plan("plan.toml").folder == tmp_path


# --- rules of one's own ------------------------------------------------------------------------

RULED = DATA + '[[algorithm]]\nname = "mine"\nalgorithm = "wf"\nweighting = "{}"\n'


def test_a_rule_is_found_beside_the_plan(load, tmp_path, monkeypatch):
    monkeypatch.chdir("/")
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "mine.py").write_text(
        "import numpy as np\n\ndef _most(counts):\n    return np.minimum(counts, MOST)\n\n"
        "def capped(local):\n    return _most(local.counts)\n\nMOST = 2\n"
    )
    plan = load(RULED.format("rules/mine.py:capped"))
    parameters = plan.algorithms[0].parameters
    assert parameters == {"weighting": "rules/mine.py:capped"}  # a text, to be sent to workers
    rule = check_rule(parameters, plan.folder)["weighting"]

    class Local:
        counts = np.array([1, 5])

    np.testing.assert_array_equal(rule(Local), [1, 2])


@pytest.mark.parametrize(
    ("file", "named", "parts"),
    [
        (None, "mine.py:capped", ["no file", "mine.py'", "check"]),
        ("x = 1", "mine.py:capped", ["mine.py'", "no function 'capped'", "check"]),
        ("capped = 1", "mine.py:capped", ["no function 'capped'"]),
        ("capped = 1", "mine.py:", ["no function ''"]),
        ("def capped(", "mine.py:capped", ["cannot be run", "SyntaxError", "correct"]),
        ("1 / 0", "mine.py:capped", ["cannot be run", "ZeroDivisionError"]),
        ("import no_such_module", "mine.py:capped", ["cannot be run", "no_such_module"]),
        ("raise SystemExit(3)", "mine.py:capped", ["cannot be run", "SystemExit(3)"]),
    ],
)
def test_rules_that_cannot_be(refused, tmp_path, file, named, parts):
    if file is not None:
        (tmp_path / "mine.py").write_text(file)
    message = refused(RULED.format(named))
    for part in ["[[algorithm]] number 1", repr(named), *parts]:
        assert part in message


def test_a_rule_is_for_algorithms_that_take_one(refused, tmp_path):
    (tmp_path / "mine.py").write_text("def capped(local):\n    return local.counts\n")
    message = refused(DATA + DWF + 'weighting = "mine.py:capped"\n')
    assert "weighting cannot be set for 'dwf'" in message
