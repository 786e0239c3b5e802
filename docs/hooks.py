"""Fill the page on the command line from the commands themselves, so that it cannot fall behind."""

from __future__ import annotations

import re

import typer

from fedkmeans.cli import app

PLACE = "{{ commands }}"


def on_page_markdown(markdown, **_):
    """Replace the placeholder; called by mkdocs for every page."""
    return markdown.replace(PLACE, _reference()) if PLACE in markdown else markdown


def _reference():
    return "\n\n".join(_sections("fedkmeans", typer.main.get_command(app)))


def _sections(path, group):
    """One section a command; a group's own commands follow it."""
    for name, command in sorted(group.commands.items()):
        yield _section(f"{path} {name}", command)
        yield from _sections(f"{path} {name}", command) if hasattr(command, "commands") else ()


def _section(path, command):
    about, _, examples = re.sub(r"\[/?bold\]|\x08", "", command.help).partition("Examples")
    lines = [f"## `{path}`", about.strip()]
    if examples:
        shown = "\n".join(line.strip() for line in examples.strip().splitlines())
        lines.append(f"```\n{shown}\n```")
    rows = [_row(parameter) for parameter in command.params if parameter.name != "help"]
    if rows:
        lines.append("| argument or option | meaning |\n|---|---|\n" + "\n".join(rows))
    return "\n\n".join(lines)


def _row(parameter):
    names = ", ".join(f"`{option}`" for option in parameter.opts)
    if parameter.param_type_name == "argument":
        names = f"`{parameter.name.upper()}`"
    text = " ".join((getattr(parameter, "help", None) or "").split()).replace("|", "\\|")
    return f"| {names} | {text} |"
