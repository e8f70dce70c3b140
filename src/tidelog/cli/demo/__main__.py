"""`bin/demo`."""

from __future__ import annotations

import shutil
import tempfile
import time
from typing import Annotated

import typer

from tidelog.cli.exits import DAMAGED, FINE, guarded


@guarded
def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave the data directory, and say where it is.")] = False,
    transfers: Annotated[
        int, typer.Option(metavar="N", help="How many transfers are written first.", min=12000)
    ] = 30000,
) -> int:
    """Show the journal at work, in a temporary directory on the real disk, in about ten seconds.

    Every figure was measured in this run, and every claim checked: the exit status is 0 only if all of them hold.
    """
    from tidelog.cli.demo import acts
    from tidelog.cli.demo.stage import Stage

    stage = Stage()
    started = time.perf_counter()
    base = tempfile.mkdtemp(prefix="tidelog-demo-")
    folder = f"{base}/data"
    try:
        stage.title(f"Tidelog's journal, in {folder}")
        acts.write_and_measure(stage, folder, transfers)
        acts.kill_and_recover(stage, folder)
        acts.snapshot_and_erase(stage, folder)
        acts.flip_a_bit(stage, folder, max(transfers // 3, 8000))
        acts.say_what_next(stage, folder, kept=keep)
    finally:
        if not keep:
            shutil.rmtree(base)
    took_s = time.perf_counter() - started
    stage.title("")
    if stage.broken:
        stage.title(f"{len(stage.broken)} claim(s) did not hold, after {took_s:.1f} s: {'; '.join(stage.broken)}")
        return DAMAGED
    stage.title(f"Everything shown was true, in {took_s:.1f} s.")
    return FINE


if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command(context_settings={"help_option_names": ["-h", "--help"]})(demo)
    app(prog_name="demo")
