"""The verbs put together, and the one place where mistakes become one line."""

from __future__ import annotations

import importlib.metadata
import io
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from bench.cli.cancel import cancel
from bench.cli.checking import check_method, new_method
from bench.cli.data import data
from bench.cli.listing import list_things
from bench.cli.publishing import publish
from bench.cli.running import run_suite
from bench.cli.status import status
from bench.cli.writing import report, tables
from bench.errors import UserError, unknown

# Newer versions of Typer carry their own copy of Click; these are the classes of whichever it uses.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]
_ClickException: type[Exception] = typer.BadParameter.__mro__[2]

HELP = """Compare implicit ensembles, one network that answers as M, under one matched budget.

A first session:

    sigma-bench list suites     what can be run
    sigma-bench run digits      six methods on real images, in minutes
    sigma-bench status digits   which runs are done, and why others are not
    sigma-bench tables digits   every table again, without training

Your own method, in one file:

    sigma-bench new-method my_idea
    sigma-bench check-method my_idea.py
    sigma-bench run digits --plugin my_idea.py \\
        --set "methods=[deep_ensemble, my_idea]"
"""


class Verbs(TyperGroup):
    """The group of verbs; a verb that does not exist gets the nearest ones."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the verb that the first argument names."""
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            raise unknown("command", args[0], self.commands)
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=Verbs,
    add_completion=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(asked: bool) -> None:
    if asked:
        print(f"sigma-bench {importlib.metadata.version('sigma-bench')}")
        raise typer.Exit


@app.callback(help=HELP)
def _top(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    pass


app.command("run")(run_suite)
app.command("status")(status)
app.command("cancel")(cancel)
app.command("tables")(tables)
app.command("report")(report)
app.command("publish")(publish)
app.command("list")(list_things)
app.command("data")(data)
app.command("check-method")(check_method)
app.command("new-method")(new_method)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: what stands after ``sigma-bench``; by default those of this process.

    Returns:
        the exit code: 0; 1 if a run, a check or a fetch failed, or data are missing; 2 for a
        person's mistake, said in one line on stderr; 130 after Ctrl-C.
    """
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    _show_what_can_be_shown()
    try:
        code = get_command(app).main(words, prog_name="sigma-bench", standalone_mode=False)
        sys.stdout.flush()
    except UserError as error:
        return _refuse(str(error))
    except _UsageError as error:
        return _refuse(_usage_line(error))
    except _ClickException as error:
        return _refuse(str(error))
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except OSError as error:
        if error.strerror is None:
            raise
        _drop_what_cannot_be_written()
        return _refuse(f"{error.filename or 'input or output'}: {error.strerror}")
    return code if isinstance(code, int) else 0


def _show_what_can_be_shown() -> None:
    """Let a terminal without σ or ↑ show a question mark there, instead of ending the program."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _drop_what_cannot_be_written() -> None:
    """Where output takes nothing more, send the rest nowhere: Python would try again at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _refuse(message: str) -> int:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return 2


def _usage_line(error: Any) -> str:
    """What is wrong with the words on the command line, and where to read what is right."""
    context = getattr(error, "ctx", None)
    if hasattr(error, "possibilities") and context is not None:
        options = [name for option in context.command.params for name in option.opts]
        return str(unknown("option", error.option_name, [o for o in options if o.startswith("-")]))
    message = error.format_message().rstrip(".")
    message = message[:1].lower() + message[1:]
    verb = context.command_path if context is not None else "sigma-bench"
    return f"{message}: see `{verb} --help`"
