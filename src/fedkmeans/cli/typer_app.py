"""The program, made of the tables of commands and options. Imports nothing heavy."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import typer
from typer.core import TyperCommand

from fedkmeans.cli.commands import COMMANDS, START_HELP, Command
from fedkmeans.cli.error_handling import Group, SubGroup, hide_types
from fedkmeans.cli.federation_commands import FEDERATION_COMMANDS, FEDERATION_HELP, SITE_COMMANDS, SITE_HELP
from fedkmeans.cli.options import Option
from fedkmeans.cli.process import WRONG_INPUT
from fedkmeans.cli.study_commands import STUDY_COMMANDS, STUDY_HELP
from fedkmeans.errors import ParameterError


class _Command(TyperCommand):
    """A command whose help does not show Python's types."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return arguments and options."""
        return hide_types(super().get_params(ctx))


def _function(command: Command) -> Callable[..., None]:
    """Return a function with one parameter for each option, as Typer wants it."""
    rows = command.rows()

    def call(**values: Any) -> None:
        if command.needs_flower and find_spec("flwr") is None:
            raise ParameterError(
                "federations run on Flower, which is not installed; pip install 'fedkmeans[flower]'"
            )
        for row in rows:
            row.check(values[row.name])
        module, _, name = command.run.partition(":")
        getattr(import_module(f"fedkmeans.cli.{module}"), name)(**_grouped(rows, values))

    parameters = [row.parameter() for row in rows]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def _grouped(rows: Sequence[Option], values: dict[str, Any]) -> dict[str, Any]:
    """Put options of one group, those that were given, into one dict."""
    keywords: dict[str, Any] = {row.group: {} for row in rows if row.group is not None}
    for row in rows:
        if row.group is None:
            keywords[row.name] = values[row.name]
        elif values[row.name] is not None:
            keywords[row.group][row.name] = values[row.name]
    return keywords


def _add(to: typer.Typer, commands: Sequence[Command]) -> None:
    for command in commands:
        to.command(command.name, cls=_Command, help=command.help)(_function(command))


def _group(name: str, help_: str, commands: Sequence[Command]) -> None:
    """Add a group of commands, which shows its help when it is called without a command."""
    group = typer.Typer(cls=SubGroup, invoke_without_command=True, rich_markup_mode="rich")

    @group.callback(help=help_)
    def start(ctx: typer.Context) -> None:
        if ctx.invoked_subcommand is None:
            typer.echo(ctx.get_help(), nl=False)
            raise typer.Exit(WRONG_INPUT)

    _add(group, commands)
    app.add_typer(group, name=name)


def _version(wanted: bool) -> None:
    if wanted:
        from fedkmeans import __version__

        typer.echo(f"fedkmeans {__version__}")
        raise typer.Exit


app = typer.Typer(
    cls=Group,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="rich",
    # A traceback with local variables would show rows of somebody's data.
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(help=START_HELP)
def _start(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Say the version."
    ),
    debug: bool = typer.Option(False, "--debug", hidden=True),
) -> None:
    """Take the options that stand before the command."""


_add(app, COMMANDS)
_group("study", STUDY_HELP, STUDY_COMMANDS)
_group("federation", FEDERATION_HELP, FEDERATION_COMMANDS)
_group("site", SITE_HELP, SITE_COMMANDS)
