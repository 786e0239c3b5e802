"""Compare speed and quality in one run; see ``python -m benchmarks --help``."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks import compilation, flower, growth, kfed, peak, quality, report, runs, scale, sparse, step
from benchmarks.timing import Settings, machine

SECTIONS = {
    "runs": runs,
    "step": step,
    "kfed": kfed,
    "quality": quality,
    "scale": scale,
    "growth": growth,
    "peak": peak,
    "sparse": sparse,
    "compilation": compilation,
    "flower": flower,
}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.partition(";")[0])
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"some of {', '.join(SECTIONS)}")
    parser.add_argument("--quick", action="store_true", help="only check that it works")
    parser.add_argument("--kernel", choices=("numba", "numpy"), default="numba", help="our kernel")
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="write each section's results as JSON")
    parser.add_argument("--tables", type=Path, metavar="FOLDER", help="only print tables of saved results")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.sections if name not in SECTIONS]
    if unknown:
        parser.error(f"unknown section {unknown[0]!r}; choose from {', '.join(SECTIONS)}")
    return options


def run_section(name: str, settings: Settings, folder: Path | None) -> int:
    """Print rows as they are measured; return how many of them compare different answers."""
    section, here = SECTIONS[name], machine()
    rows, shown = [], None
    for row in section.measure(settings):
        table = section.TABLES[row["table"]]
        if table is not shown:
            print(report.opening(table))
            shown = table
        print(report.line(table, row), flush=True)
        rows.append(row)
        # After every row, so that an interruption does not lose the measurements of a long section.
        if folder is not None:
            report.save(folder, name, {"machine": here, "settings": asdict(settings), "rows": rows})
    return sum(not row.get("agreed", True) for row in rows)


def main() -> int:
    options = parse()
    if options.tables is not None:
        report.print_saved(options.tables, {name: section.TABLES for name, section in SECTIONS.items()})
        return 0
    print(report.machine_line(machine()))
    settings = Settings(options.quick, options.kernel)
    different = sum(run_section(name, settings, options.save) for name in options.sections or SECTIONS)
    if different:
        print(f"\n{different} row(s) compare different answers.", file=sys.stderr)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
