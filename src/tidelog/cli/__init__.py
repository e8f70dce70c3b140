"""The command line. Each command is one module, thin over the library; each group of commands is a folder.

    app           all commands, as a table
    serve         `tidelog serve`
    snapshot      `tidelog snapshot`
    restore       `tidelog restore`
    feed/         `tidelog feed`
    ship/         `tidelog ship`, `tidelog ship status`
    backups/      `tidelog backups ls`
    stream/       `tidelog stream ls | tail | info`
    events/       `tidelog events put | tail | ls`
    channel/      `tidelog channel pub | sub | rm | ls`
    channels/     `tidelog channels serve`
    pipeline/     `tidelog pipeline compress | expire | lake | verify | status | view`
    view/         `tidelog view ls | show | check | drop`
    journal/      `tidelog journal ls | show | verify | repair`
    ship_options  options of copies in object stores
    copy_place    the copy that the options name, opened
    options       options that several commands have
    server_link   the server that the options name, and connections to it
    kept_link     a link that is made anew when it is lost, for commands that run for long
    outage        what is said while a server does not answer
    output/       how things are printed: tables on a terminal, plain text in a pipe, JSON lines with --json
    exits         exit statuses, and what becomes of errors, signals and closed pipes
    __main__      `python -m tidelog.cli`

The command line starts quickly because nothing heavy is imported before it is used: this module imports nothing, and
commands import the library inside their functions.
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
