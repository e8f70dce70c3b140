"""The command line: one file a subcommand, each thin over the library.

    app              the tree of commands
    serve            `tidelog serve`
    snapshot         `tidelog snapshot`; it asks a running server by server_link
    restore          `tidelog restore`
    feed, feed_*     `tidelog feed`, on the Python client
    journal_*        `tidelog journal ls | show | verify | repair`
    pipeline_*       `tidelog pipeline compress | expire | verify`
    stream_*         `tidelog stream ls | tail | info`
    journal_folder   what they share: which directory is meant, which operations are known
    output, values   how things are printed: tables on a terminal, plain text in a pipe, JSON lines with --json
    progress_bar     how far something is that takes long
    exits            what becomes of errors, Ctrl-C and closed pipes
    demo             `bin/demo`

Starting up is quick because nothing heavy is imported before it is used: this module imports nothing, and commands
import the library inside their functions.
"""

from __future__ import annotations


def main() -> None:
    """The entry point: runs the command line of this process and exits."""
    from tidelog.cli.exits import INTERRUPTED

    try:
        from tidelog.cli.app import app

        app(prog_name="tidelog")
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
