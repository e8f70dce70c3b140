"""The reply of `<CONTAINER> HELP`: one simple string a line, as Redis has it."""

from __future__ import annotations

from textwrap import dedent


def help_reply(container: str, text: str) -> list[str]:
    """A head, the subcommands, and HELP itself."""
    return [
        f"{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        *dedent(text).strip("\n").splitlines(),
        "HELP",
        "    Prints this help.",
    ]
