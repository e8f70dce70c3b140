"""All commands, as a table. A new command is one module, with a function and an `EPILOG`, and one row here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final, NamedTuple

import typer
from typer.core import TyperCommand

from tidelog import __version__
from tidelog.cli import restore, serve, snapshot
from tidelog.cli.backups import ls as backups_ls
from tidelog.cli.channel import ls as channel_ls
from tidelog.cli.channel import pub as channel_pub
from tidelog.cli.channel import rm as channel_rm
from tidelog.cli.channel import sub as channel_sub
from tidelog.cli.channels import serve as channels_serve
from tidelog.cli.events import ls as events_ls
from tidelog.cli.events import put as events_put
from tidelog.cli.events import tail as events_tail
from tidelog.cli.feed import feed
from tidelog.cli.journal import ls as journal_ls
from tidelog.cli.journal import repair as journal_repair
from tidelog.cli.journal import show as journal_show
from tidelog.cli.journal import verify as journal_verify
from tidelog.cli.pipeline import compress as pipeline_compress
from tidelog.cli.pipeline import expire as pipeline_expire
from tidelog.cli.pipeline import lake as pipeline_lake
from tidelog.cli.pipeline import optimize as pipeline_optimize
from tidelog.cli.pipeline import run as pipeline_run
from tidelog.cli.pipeline import status as pipeline_status
from tidelog.cli.pipeline import verify as pipeline_verify
from tidelog.cli.pipeline import view as pipeline_view
from tidelog.cli.ship import ship
from tidelog.cli.ship import status as ship_status
from tidelog.cli.stream import info as stream_info
from tidelog.cli.stream import ls as stream_ls
from tidelog.cli.stream import tail as stream_tail
from tidelog.cli.view import check as view_check
from tidelog.cli.view import drop as view_drop
from tidelog.cli.view import ls as view_ls
from tidelog.cli.view import show as view_show


class CommandRow(NamedTuple):
    """A command of `tidelog`."""

    words: str
    """Its name, after the name of its group if it has one."""
    function: Callable[..., None]
    """Its parameters are the options, its docstring is the help text."""
    epilog: str
    """Printed after the options: examples, the JSON form, exit statuses."""
    parser: type[TyperCommand] = TyperCommand


class GroupRow(NamedTuple):
    """A group of commands."""

    name: str
    help: str
    examples: tuple[str, ...]
    default: Callable[..., None] | None = None
    """What the name of the group does by itself: its parameters are options, its docstring is the help text ..."""
    epilog: str = ""
    """... and this is printed after them."""


GROUPS: Final = (
    GroupRow(
        "stream",
        "Look at the streams of a running server.",
        ("tidelog stream ls", "tidelog stream tail orders --follow", "tidelog stream info orders"),
    ),
    GroupRow(
        "events",
        "Write and read the day streams of job sets, on Tidelog or any Redis.",
        (
            "tidelog events put reports nightly < events.jsonl",
            "tidelog events tail reports nightly --from now --json",
            "tidelog events ls",
        ),
    ),
    GroupRow(
        "channel",
        "Publish to channels and subscribe to them, on Tidelog or any Redis. (`tidelog channels` serves them over "
        "HTTP.)",
        (
            "tidelog channel pub orders '{\"total\": 3}' --id order-17",
            "tidelog channel sub orders me",
            "tidelog channel ls",
        ),
    ),
    GroupRow(
        "channels",
        "Serve channels, durable publish/subscribe over HTTP, from Tidelog or any Redis. (`tidelog channel` publishes "
        "and subscribes from the shell.)",
        ("tidelog channels serve --backend redis://127.0.0.1:6379",),
    ),
    GroupRow(
        "pipeline",
        "Run jobs over the history of a server on Spark, on this machine or on a cluster.",
        (
            "tidelog pipeline compress --older-than-days 2",
            "tidelog pipeline expire --older-than-days 30",
            "tidelog pipeline verify data",
            "tidelog pipeline lake --to lake --once",
            "tidelog pipeline run --file pipeline.toml",
            "tidelog pipeline optimize --to lake",
            "tidelog pipeline status",
        ),
    ),
    GroupRow("ship", "", (), ship.ship, ship.EPILOG),
    GroupRow(
        "backups",
        "Look into the copies that servers keep in object stores.",
        ("tidelog backups ls s3://bucket/tidelog", "tidelog backups ls copy --json"),
    ),
    GroupRow(
        "view",
        "List, show, check and remove the views that `tidelog pipeline view` maintains.",
        ("tidelog view ls", "tidelog view show orders_by_state", "tidelog view check --to lake"),
    ),
    GroupRow(
        "journal",
        "Look into a journal, check it, and repair it.",
        (
            "tidelog journal ls data",
            "tidelog journal show data --payload --limit 20",
            "tidelog journal verify data",
            "tidelog journal repair data --dry-run",
        ),
    ),
)

COMMANDS: Final = (
    CommandRow("serve", serve.serve, serve.EPILOG, serve.ServeCommand),
    CommandRow("snapshot", snapshot.snapshot, snapshot.EPILOG),
    CommandRow("feed", feed.feed, feed.EPILOG, feed.FeedCommand),
    CommandRow("restore", restore.restore, restore.EPILOG),
    CommandRow("ship status", ship_status.status, ship_status.EPILOG),
    CommandRow("backups ls", backups_ls.ls, backups_ls.EPILOG),
    CommandRow("stream ls", stream_ls.ls, stream_ls.EPILOG),
    CommandRow("stream tail", stream_tail.tail, stream_tail.EPILOG),
    CommandRow("stream info", stream_info.info, stream_info.EPILOG),
    CommandRow("events put", events_put.put, events_put.EPILOG),
    CommandRow("events tail", events_tail.tail, events_tail.EPILOG),
    CommandRow("events ls", events_ls.ls, events_ls.EPILOG),
    CommandRow("channel pub", channel_pub.pub, channel_pub.EPILOG),
    CommandRow("channel sub", channel_sub.sub, channel_sub.EPILOG),
    CommandRow("channel rm", channel_rm.rm, channel_rm.EPILOG),
    CommandRow("channel ls", channel_ls.ls, channel_ls.EPILOG),
    CommandRow("channels serve", channels_serve.serve, channels_serve.EPILOG),
    CommandRow("pipeline compress", pipeline_compress.compress, pipeline_compress.EPILOG),
    CommandRow("pipeline expire", pipeline_expire.expire, pipeline_expire.EPILOG),
    CommandRow("pipeline lake", pipeline_lake.lake, pipeline_lake.EPILOG),
    CommandRow("pipeline optimize", pipeline_optimize.optimize, pipeline_optimize.EPILOG),
    CommandRow("pipeline verify", pipeline_verify.verify, pipeline_verify.EPILOG),
    CommandRow("pipeline run", pipeline_run.run, pipeline_run.EPILOG),
    CommandRow("pipeline status", pipeline_status.status, pipeline_status.EPILOG),
    CommandRow("pipeline view", pipeline_view.view, pipeline_view.EPILOG),
    CommandRow("view ls", view_ls.ls, view_ls.EPILOG),
    CommandRow("view show", view_show.show, view_show.EPILOG),
    CommandRow("view check", view_check.check, view_check.EPILOG),
    CommandRow("view drop", view_drop.drop, view_drop.EPILOG),
    CommandRow("journal ls", journal_ls.ls, journal_ls.EPILOG),
    CommandRow("journal show", journal_show.show, journal_show.EPILOG),
    CommandRow("journal verify", journal_verify.verify, journal_verify.EPILOG),
    CommandRow("journal repair", journal_repair.repair, journal_repair.EPILOG),
)

app = typer.Typer(
    name="tidelog",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    epilog="`tidelog COMMAND --help` explains a command and shows examples.",
)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"tidelog {__version__}")
        raise typer.Exit


@app.callback()
def tidelog(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Tidelog: an event store that keeps every change in one journal."""


def _fill(root: typer.Typer) -> None:
    """Adds the rows of both tables to the command line."""
    typers = {"": root}
    for group in GROUPS:
        epilog = group.epilog or "\n\n  ".join(["Examples:", *group.examples])
        typers[group.name] = typer.Typer(no_args_is_help=True, rich_markup_mode=None, epilog=epilog)
        if group.default is None:
            root.add_typer(typers[group.name], name=group.name, help=group.help)
        else:
            typers[group.name].callback(invoke_without_command=True)(group.default)
            root.add_typer(typers[group.name], name=group.name)
    for command in COMMANDS:
        group_name, _, name = command.words.rpartition(" ")
        typers[group_name].command(name, cls=command.parser, epilog=command.epilog)(command.function)


_fill(app)
