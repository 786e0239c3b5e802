"""The program, made of the tables of commands and options. Imports nothing heavy."""

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import typer

from fedkmeans import __version__
from fedkmeans.cli.commands import COMMANDS, START_HELP, STUDY_COMMANDS, STUDY_HELP, Command, help_text
from fedkmeans.cli.error_handling import Group, SingleCommand, SubGroup
from fedkmeans.cli.federation_commands import FEDERATION_COMMANDS, FEDERATION_HELP, SITE_COMMANDS, SITE_HELP
from fedkmeans.cli.options import CHOICES, Option
from fedkmeans.cli.process import WRONG_INPUT
from fedkmeans.errors import ParameterError


def _function(command: Command) -> Callable[..., None]:
    """Return a function with one parameter for each option, as Typer wants it."""
    rows = [
        row if isinstance(row, Option) else Option.of(usage, row) for usage, row in command.options.items()
    ]
    module, name = command.run.split(":")

    def call(**values: Any) -> None:
        if module.startswith("federation") and find_spec("flwr") is None:
            raise ParameterError(
                "federations run on Flower, which is not installed; pip install 'fedkmeans[flower]'"
            )
        keywords: dict[str, Any] = {row.group: {} for row in rows if row.group is not None}
        for row in rows:
            value = values[row.name]
            if value is not None and value not in CHOICES.get(row.name, [value]):
                choices = " or ".join(CHOICES[row.name])
                raise typer.BadParameter(f"must be {choices}, got {value!r}.", param_hint=row.flags[0])
            if row.group is None:
                keywords[row.name] = value
            elif value is not None:
                keywords[row.group][row.name] = value
        getattr(import_module(f"fedkmeans.cli.{module}"), name)(**keywords)

    parameters = [row.parameter() for row in rows]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def _add(to: typer.Typer, commands: Mapping[str, Command]) -> None:
    for name, command in commands.items():
        to.command(name, cls=SingleCommand, help=help_text(command.help))(_function(command))


def _group(name: str, help_: str, commands: Mapping[str, Command]) -> None:
    """Add a group of commands, which shows its help when it is called without a command."""
    group = typer.Typer(cls=SubGroup, invoke_without_command=True, rich_markup_mode="rich")

    @group.callback(help=help_text(help_))
    def start(ctx: typer.Context) -> None:
        if ctx.invoked_subcommand is None:
            typer.echo(ctx.get_help(), nl=False)
            raise typer.Exit(WRONG_INPUT)

    _add(group, commands)
    app.add_typer(group, name=name)


def _version(wanted: bool) -> None:
    if wanted:
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


@app.callback(help=help_text(START_HELP))
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
