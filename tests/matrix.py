"""Run the tests with each Python that the package is for, or with the lowest versions of what it needs.

    python tests/matrix.py pythons [--fast]      # make test-pythons
    python tests/matrix.py lowest [--fast]       # make test-lowest

Each has an environment of its own, in `.venvs`, which is kept for the next time. Pythons are looked for on
the search path (python3.12, …) and among those of pyenv; those that are not found are named.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
ALL = "not paper and (short or not faults)"
FAST = "not paper and not faults and not browser and not slow"


def supported():
    """The versions of Python that pyproject.toml lists, the lowest first."""
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    return re.findall(r":: (3\.\d+)$", "\n".join(classifiers), re.MULTILINE)


def find(version):
    """A Python of this version that works; None if the machine has none."""
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    of_pyenv = sorted(pyenv.glob(f"{version}.*/bin/python"), key=lambda path: _numbers(path.parts[-3]))
    for candidate in (shutil.which(f"python{version}"), *reversed(of_pyenv), sys.executable):
        # One on the path may be a placeholder of pyenv for a version that is not activated.
        if candidate and version_of(candidate) == version:
            return candidate
    return None


def _numbers(text):
    return [int(number) for number in re.findall(r"\d+", text)]


def version_of(python):
    """The version of a Python, as in "3.12"; empty if it does not work."""
    code = "import sys, sqlite3, ssl; print('%d.%d' % sys.version_info[:2])"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=False).stdout.strip()


def run(name, python, fast, *, resolution="highest", **variables):
    """Make an environment and run the tests in it; returns whether they passed."""
    environment = ROOT / ".venvs" / name
    inside = environment / "bin/python"
    uv = Path(sys.executable).with_name("uv")
    print(f"--- {name}: {python}", flush=True)
    if not inside.exists():
        subprocess.run([uv, "venv", "--quiet", "--python", python, environment], check=True)
    install = [uv, "pip", "install", "--quiet", "--python", inside, "--upgrade", "--resolution", resolution]
    subprocess.run([*install, "--editable", f"{ROOT}[test]"], check=True)
    # Otherwise environments with the same Python would replace each other's compiled code.
    variables["NUMBA_CACHE_DIR"] = str(environment / "numba")
    workers = ["-n", os.environ.get("WORKERS", "2"), "--dist", "loadfile", "--no-loadscope-reorder"]
    tests = [inside, "-m", "pytest", "-q", "-m", FAST if fast else ALL, *workers]
    return subprocess.run(tests, cwd=ROOT, env=os.environ | variables, check=False).returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=["pythons", "lowest"])
    parser.add_argument(
        "--fast", action="store_true", help="leave out what takes long, and the Python that runs this"
    )
    arguments = parser.parse_args()
    outcomes = {}
    if arguments.what == "lowest":
        found = find(supported()[0])
        if found is None:
            sys.exit(
                f"The lowest versions go with Python {supported()[0]}, which this machine does not have."
            )
        environments = {"lowest": found}
    else:
        environments = {version: find(version) for version in supported()}
    for name, python in environments.items():
        started = time.monotonic()
        if python is None:
            outcomes[name] = "not found on this machine"
        elif arguments.fast and name == version_of(sys.executable):
            outcomes[name] = "left out: make test runs with it"
        else:
            lowest = {"resolution": "lowest-direct", "FEDKMEANS_LOWEST": "1"} if name == "lowest" else {}
            passed = run(name, python, arguments.fast, **lowest)
            outcomes[name] = f"{'passed' if passed else 'FAILED'} in {time.monotonic() - started:.0f} s"
    print("\n".join(["", *(f"{name:8}{outcome}" for name, outcome in outcomes.items())]))
    return 1 if any(outcome.startswith("FAILED") for outcome in outcomes.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
