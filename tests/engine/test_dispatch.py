"""Running commands: what a bug in one of them may and may not do."""

from __future__ import annotations

from tests.commands.running import Commands
from tidelog.engine.dispatch import run_command
from tidelog.engine.table import ONE_KEY, STRING, write
from tidelog.resp.encoder import ErrorReply
from tidelog.streams.operations import GroupDrop, GroupSet


def test_an_operation_that_fits_no_record_is_a_refusal_and_not_the_end() -> None:
    run = Commands()
    run("TGROUP", "k", "g")
    too_large = GroupSet(b"k", b"g", 0, 0, 2**63, 0, b"", 0)
    row = write(STRING, "ANY", 1, lambda *_: (1, [GroupDrop(b"k", b"g"), too_large]), ONE_KEY, summary="")
    transaction = run.store.begin(0)
    reply = run_command(row, transaction, [b"ANY"])
    assert isinstance(reply, ErrorReply)
    assert reply.message == "ERR internal error"
    assert transaction.records == []
    assert list(run.stream().groups) == [b"g"]
