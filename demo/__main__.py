"""`bin/demo`."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Final

import typer

from tidelog.cli.exits import FAILED, FINE, guarded, terminate_in_order

EPILOG: Final = """\
Examples:

  bin/demo

  bin/demo --events 200000 --seed 7

  bin/demo --keep

  bin/demo --json | jq 'select(.kind == "claim")'

JSON: kind "act" (number, title), "say" (text), "figure" (name, value), "claim" (text, holds), "table" (title, rows),
then "summary" (claims, broken, seconds, steps, folder).

Exit status: 0 if every claim held, 1 if one did not, 2 if it could not be shown, 130 for Ctrl-C or SIGTERM."""

EVENTS_MIN: Final = 4000


@guarded
def demo(
    events: Annotated[
        int, typer.Option("--events", metavar="N", help="How many events the week has.", min=EVENTS_MIN)
    ] = 50_000,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Another seed, another week.")] = 1,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the folder, and say where it is.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON lines.")] = False,
) -> int:
    """Show Tidelog's main job from end to end, with real processes, in a temporary folder.

    A week of job events comes into a server, and consumers move it into day streams. A consumer and the server are
    killed in the middle of it, while a change feed in another process goes on. Then old days are compressed on Spark,
    Spark answers a question over all days, views are kept while jobs come and go, a lake takes in all that happened,
    the journal is verified, and the lake is asked what the server was asked before.

    Every figure was measured in this run, and every claim is checked against a ledger of what was made.
    """
    from demo import acts, history, lake
    from demo.scene import Scene
    from demo.stage import Stage
    from demo.week import DAYS, make_week

    terminate_in_order()
    stage = Stage(as_json=as_json)
    folder = Path(tempfile.mkdtemp(prefix="tidelog-demo-"))
    try:
        stage.title(f"Tidelog, in {folder}")
        with ExitStack() as running:
            stage.act("Start a server, and a change feed in another process")
            week = make_week(datetime.now(UTC).date() - timedelta(days=DAYS), events, seed)
            scene = Scene(stage, folder, week, running)
            server, feed = scene.server, scene.watcher
            stage.figure("server", f"{server.url}, process {server.pid}, ready in {server.start_s:.1f} s", server.url)
            stage.figure("feed", f"process {feed.pid}, on all day streams", feed.pid)
            acts.bring_in(scene)
            acts.crash_consumer(scene)
            acts.crash_server(scene)
            acts.compare(scene)
            analyst = history.start_analyst(scene)
            sizes = history.compress(scene)
            viewing = lake.start_views(scene)
            history.ask(scene, analyst, sizes)
            lake.keep_views(scene, viewing)
            lake.change_live(scene, viewing)
            lake.keep_lake(scene, viewing)
            history.examine_journal(scene)
            lake.ask_lake(scene, analyst)
    finally:
        if not keep:
            shutil.rmtree(folder)
    stage.end(str(folder) if keep else None)
    return FAILED if stage.broken else FINE


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
app.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})(demo)

if __name__ == "__main__":
    app(prog_name="bin/demo")
