"""The table of messages: complete, and as it is drawn in the code and in the documentation."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

from tidelog.replication.kinds import BY_NUMBER, KINDS, LinkSide, Opening
from tidelog.replication.message import LinkMessage

CHECKOUT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = CHECKOUT / "docs" / "internals" / "replication.md"
SOURCE: Final = CHECKOUT / "src" / "tidelog" / "replication" / "kinds.py"


def test_every_message_has_a_row() -> None:
    assert {row.type for row in KINDS} == set(LinkMessage.__args__)


def test_the_rows_are_as_they_are_drawn() -> None:
    docstring = ast.get_docstring(ast.parse(SOURCE.read_text())) or ""  # a compiled module has none
    drawn = {int(number, 16) for number in re.findall(r"\b0x([0-9a-f]{2}) [a-z]", docstring)}
    assert drawn == set(BY_NUMBER)


def test_the_page_has_every_row_with_its_sender() -> None:
    rows = re.findall(r"^\| `0x([0-9a-f]{2})` \| ([A-Za-z]+) \| ([a-z]+) \|", PAGE.read_text(), re.MULTILINE)
    senders = {None: "either", LinkSide.LEADER: "leader", LinkSide.FOLLOWER: "follower"}
    assert rows == [(f"{row.number:02x}", row.type.__name__, senders[row.sender]) for row in KINDS]


def test_only_what_names_the_version_opens_a_link() -> None:
    assert [row.number for row in KINDS if row.opening is not Opening.NEVER] == [0x01, 0x02, 0x03]
