"""The tree of commands."""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog import __version__
from tidelog.cli import (
    events_ls,
    events_put,
    events_tail,
    feed,
    journal_ls,
    journal_repair,
    journal_show,
    journal_verify,
    pipeline_compress,
    pipeline_expire,
    pipeline_lake,
    pipeline_status,
    pipeline_verify,
    pipeline_view,
    restore,
    serve,
    snapshot,
    stream_info,
    stream_ls,
    stream_tail,
    view_check,
    view_drop,
    view_ls,
    view_show,
)

app = typer.Typer(
    name="tidelog",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    epilog="`tidelog COMMAND --help` says more about each, with examples.",
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


app.command("serve", epilog=serve.EPILOG)(serve.serve)
app.command("snapshot", epilog=snapshot.EPILOG)(snapshot.snapshot)
app.command("feed", cls=feed.FeedCommand, epilog=feed.EPILOG)(feed.feed)
app.command("restore", epilog=restore.EPILOG)(restore.restore)

stream = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="Examples:\n\n  tidelog stream ls\n\n  tidelog stream tail orders --follow\n\n  tidelog stream info orders",
)
app.add_typer(stream, name="stream", help="Look at the streams of a running server.")
stream.command("ls", epilog=stream_ls.EPILOG)(stream_ls.ls)
stream.command("tail", epilog=stream_tail.EPILOG)(stream_tail.tail)
stream.command("info", epilog=stream_info.EPILOG)(stream_info.info)

events = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="Examples:\n\n  tidelog events put reports nightly < events.jsonl\n\n"
    "  tidelog events tail reports nightly --from now --json\n\n  tidelog events ls",
)
app.add_typer(events, name="events", help="Write and read the day streams of job sets, on Tidelog or any Redis.")
events.command("put", epilog=events_put.EPILOG)(events_put.put)
events.command("tail", epilog=events_tail.EPILOG)(events_tail.tail)
events.command("ls", epilog=events_ls.EPILOG)(events_ls.ls)

pipeline = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="Examples:\n\n  tidelog pipeline compress --older-than-days 2\n\n"
    "  tidelog pipeline expire --older-than-days 30\n\n  tidelog pipeline verify data\n\n"
    "  tidelog pipeline lake --to lake --once\n\n  tidelog pipeline status",
)
app.add_typer(pipeline, name="pipeline", help="Run what sweeps over history, on Spark: here, or on a cluster.")
pipeline.command("compress", epilog=pipeline_compress.EPILOG)(pipeline_compress.compress)
pipeline.command("expire", epilog=pipeline_expire.EPILOG)(pipeline_expire.expire)
pipeline.command("lake", epilog=pipeline_lake.EPILOG)(pipeline_lake.lake)
pipeline.command("verify", epilog=pipeline_verify.EPILOG)(pipeline_verify.verify)
pipeline.command("status", epilog=pipeline_status.EPILOG)(pipeline_status.status)
pipeline.command("view", epilog=pipeline_view.EPILOG)(pipeline_view.view)

view = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="Examples:\n\n  tidelog view ls\n\n  tidelog view show orders_by_state\n\n  tidelog view check --to lake",
)
app.add_typer(
    view, name="view", help="Look at the views that `tidelog pipeline view` keeps, check them, and remove them."
)
view.command("ls", epilog=view_ls.EPILOG)(view_ls.ls)
view.command("show", epilog=view_show.EPILOG)(view_show.show)
view.command("check", epilog=view_check.EPILOG)(view_check.check)
view.command("drop", epilog=view_drop.EPILOG)(view_drop.drop)

journal = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="Examples:\n\n  tidelog journal ls data\n\n  tidelog journal show data --payload --limit 20\n\n"
    "  tidelog journal verify data\n\n  tidelog journal repair data --dry-run",
)
app.add_typer(journal, name="journal", help="Look into a journal, check it, and repair it.")
journal.command("ls", epilog=journal_ls.EPILOG)(journal_ls.ls)
journal.command("show", epilog=journal_show.EPILOG)(journal_show.show)
journal.command("verify", epilog=journal_verify.EPILOG)(journal_verify.verify)
journal.command("repair", epilog=journal_repair.EPILOG)(journal_repair.repair)
