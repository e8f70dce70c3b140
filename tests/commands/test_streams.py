"""TWRITE, TEVICT, TCONFIG, TCOMPACT, TINFO, and what other commands make of streams."""

from __future__ import annotations

import pytest

from tests.commands.running import TABLE, Commands
from tests.streams.plain import plain
from tidelog import limits
from tidelog.engine.dispatch import find_command
from tidelog.store.slots import slot_of
from tidelog.streams.node import SEQ_MAX, pack_id
from tidelog.streams.stream import Stream


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Commands:
    monkeypatch.setattr(limits, "NODE_ENTRIES_MAX", 10)
    return Commands()


# --- TWRITE -------------------------------------------------------------------------------------------------------


def test_the_short_form_takes_any_tag(run: Commands) -> None:
    assert run("TWRITE", "k", "tag", "entry") == 1
    assert run("twrite", "k", "ENTRIES", "x") == 2
    assert run("TWRITE", "k", "BACKLOG", "") == 3
    assert run("TREAD", "k", 1, 9) == [[1, b"tag", b"entry"], [2, b"ENTRIES", b"x"], [3, b"BACKLOG", b""]]


def test_the_long_form_gives_the_first_offset(run: Commands) -> None:
    assert run("TWRITE", "k", "ENTRIES", "a", 1, "b", 2) == 1
    assert run("TWRITE", "k", "maxage", 5000, "Entries", "ENTRIES", 3) == 3
    assert run("TREAD", "k", 2, 9) == [[2, b"b", b"2"], [3, b"ENTRIES", b"3"]]


def test_entries_of_one_moment_have_ids_that_count_up(run: Commands) -> None:
    run("TWRITE", "k", "ENTRIES", "a", 1, "b", 2)
    run("TWRITE", "k", "a", 3)
    assert run.stream().ids_from(1, 9) == [pack_id(run.now_ms, seq) for seq in (0, 1, 2)]
    run.clock.step_wall(-5_000_000)
    run("TWRITE", "k", "a", 4)
    assert run.stream().last_id == pack_id(run.now_ms + 5000, 3)
    run.wait(6000)
    run("TWRITE", "k", "a", 5)
    assert run.stream().last_id == pack_id(run.now_ms, 0)


def test_ids_end_some_day(run: Commands) -> None:
    run("TWRITE", "k", "a", 1)
    run.stream().last_id = pack_id(2**63, SEQ_MAX - 1)
    run("TWRITE", "k", "ENTRIES", "a", 1, "a", 2)
    assert run.stream().last_id == pack_id(2**63 + 1, 1)
    run.stream().last_id = pack_id(SEQ_MAX, SEQ_MAX)
    assert "exhausted the last possible ID" in run.refused("TWRITE", "k", "a", 1)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["a", 1, "b", 2], "ERR syntax error"),
        (["BACKLOG", 5, "a", "b"], "ERR syntax error"),
        (["BACKLOG", 5, "ENTRIES"], "ERR ENTRIES takes pairs of a tag and an entry"),
        (["ENTRIES", "a", "b", "c"], "ERR ENTRIES takes pairs of a tag and an entry"),
        (["BACKLOG", "x", "ENTRIES", "a", "b"], "ERR value is not an integer or out of range"),
        (["BACKLOG", -1, "ENTRIES", "a", "b"], "ERR BACKLOG must not be negative"),
        (["MAXAGE", -1, "ENTRIES", "a", "b"], "ERR MAXAGE must not be negative"),
        (["MAXAGE", 1, "MAXAGE", 1, "ENTRIES", "a", "b"], "ERR syntax error"),
        (["PRODUCER", "p", "x", "ENTRIES", "a", "b"], "ERR value is not an integer or out of range"),
        (["PRODUCER", "p", -1, "ENTRIES", "a", "b"], "ERR a producer's seq must not be negative"),
        (["PRODUCER", "", 1, "ENTRIES", "a", "b"], "ERR a producer's id has 1 to 256 bytes"),
        (["PRODUCER", "p" * 257, 1, "ENTRIES", "a", "b"], "ERR a producer's id has 1 to 256 bytes"),
        (["BACKLOG", 5, "MAXAGE", 5], "ERR TWRITE takes a tag and an entry, or options and ENTRIES"),
        (["BACKLOG", 5, "PRODUCER", "p"], "ERR syntax error"),
    ],
)
def test_misuse_of_twrite(run: Commands, words: list[str | int], error: str) -> None:
    assert run.refused("TWRITE", "k", *words) == error
    assert run("EXISTS", "k") == 0


@pytest.mark.parametrize("words", [["TWRITE", "k"], ["TWRITE", "k", "tag"], ["TEVICT", "k"], ["TACK", "k", "g"]])
def test_too_few_words(run: Commands, words: list[str]) -> None:
    assert "wrong number of arguments" in run.refused(*words)


def test_backlog_keeps_at_least_so_many(run: Commands) -> None:
    for at in range(100):
        run("TWRITE", "k", "BACKLOG", 25, "ENTRIES", "t", at)
        assert len(run.stream()) >= min(at + 1, 25)
    assert len(run.stream()) < 25 + 10
    run("TWRITE", "k", "BACKLOG", 0, "ENTRIES", *["t", "e"] * 3)
    assert run.offsets("TREAD", "k", 101, 9) == [101, 102, 103]
    assert len(run.stream()) == 3


def test_maxage_drops_nodes_that_are_old(run: Commands) -> None:
    for at in range(30):
        run("TWRITE", "k", "t", at)
        run.wait(100)
    assert run("TWRITE", "k", "MAXAGE", 1500, "ENTRIES", "t", "e") == 31
    assert run.stream().first == 11
    assert run("TWRITE", "k", "MAXAGE", 10**15, "ENTRIES", "t", "e") == 32
    assert run.stream().first == 11


def test_backlog_keeps_at_least_so_many_beside_maxage(run: Commands) -> None:
    run("TWRITE", "k", "ENTRIES", *["t", "e"] * 50)
    run.wait(1000)
    run("TWRITE", "k", "BACKLOG", 25, "MAXAGE", 10, "ENTRIES", "t", "e")
    assert 25 <= len(run.stream()) < 25 + 10
    run("TWRITE", "k", "ENTRIES", *["t", "e"] * 50)
    run("TWRITE", "k", "MAXAGE", 10, "BACKLOG", 25, "ENTRIES", "t", "e")
    assert 51 < len(run.stream()) < 51 + 10  # as young as MAXAGE keeps


def test_a_large_command_is_several_records_of_one_transaction(run: Commands) -> None:
    assert run("TWRITE", "k", "PRODUCER", "p", 3, "ENTRIES", *["t", "e" * 300] * 2000) == 1
    assert run("TWRITE", "k", "PRODUCER", "p", 3, "ENTRIES", "t", "e") == 1
    before = plain(run.stream())
    run.restart()
    assert plain(run.stream()) == before


# --- producers ----------------------------------------------------------------------------------------------------


def test_a_producer_writes_once(run: Commands) -> None:
    assert run("TWRITE", "k", "PRODUCER", "p", 5, "ENTRIES", "a", 1, "a", 2) == 1
    assert run("TWRITE", "k", "PRODUCER", "p", 9, "ENTRIES", "a", 3) == 3
    assert run("TWRITE", "k", "PRODUCER", "q", 0, "ENTRIES", "a", 4) == 4
    run.restart()
    assert run.quietly("TWRITE", "k", "PRODUCER", "p", 5, "ENTRIES", "other", "entry") == 1
    assert run.quietly("TWRITE", "k", "PRODUCER", "p", 9, "ENTRIES", "a", 3) == 3
    assert run.quietly("TWRITE", "k", "PRODUCER", "q", 0, "ENTRIES", "a", 3) == 4
    error = "ERR the producer is at seq 9 already, and what 7 got is forgotten"
    assert run.refused("TWRITE", "k", "PRODUCER", "p", 7, "ENTRIES", "a", 3) == error
    assert len(run.stream()) == 4


def test_old_calls_are_forgotten_and_never_written_again(run: Commands) -> None:
    for seq in range(2 * limits.PRODUCER_SEQS_KEPT):
        run("TWRITE", "k", "PRODUCER", "p", seq, "ENTRIES", "a", seq)
    assert "is forgotten" in run.refused("TWRITE", "k", "PRODUCER", "p", 0, "ENTRIES", "a", 0)
    kept = limits.PRODUCER_SEQS_KEPT
    assert run("TWRITE", "k", "PRODUCER", "p", kept, "ENTRIES", "a", 0) == kept + 1


# --- TEVICT, TCOMPACT ---------------------------------------------------------------------------------------------


def test_tevict_drops_whole_nodes(run: Commands) -> None:
    run("TWRITE", "k", "ENTRIES", *["t", "e"] * 35)
    assert run.quietly("TEVICT", "k", 9) == 0
    assert run("TEVICT", "k", 10) == 10
    assert run("TEVICT", "k", 29) == 10
    assert run.quietly("TEVICT", "k", 29) == 0
    assert run.quietly("TEVICT", "k", -6) == 0
    assert run("TEVICT", "k", -5) == 10
    assert run.quietly("TEVICT", "k", 34) == 0
    assert run("TEVICT", "k", 35) == 5
    assert run("EXISTS", "k") == 1
    assert run("TWRITE", "k", "t", "e") == 36
    assert run("TEVICT", "k", 2**63 - 1) == 1
    assert run.quietly("TEVICT", "k", -(2**63)) == 0
    assert run.quietly("TEVICT", "none", 5) == run.quietly("TEVICT", "none", "AGE", 5) == 0


def test_tevict_by_age(run: Commands) -> None:
    for at in range(30):
        run("TWRITE", "k", "t", at)
        run.wait(100)
    assert run.quietly("TEVICT", "k", "AGE", 3000) == 0
    assert run("TEVICT", "k", "age", 1500) == 10
    assert run.quietly("TEVICT", "k", "AGE", 10**18) == 0
    run.wait(5000)
    assert run("TEVICT", "k", "AGE", 1000) == 20


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["x"], "ERR value is not an integer or out of range"),
        (["AGE"], "ERR value is not an integer or out of range"),
        (["AGE", "x"], "ERR value is not an integer or out of range"),
        (["AGE", -1], "ERR AGE must not be negative"),
        (["SIZE", 1], "ERR syntax error"),
        (["AGE", 1, 2], "ERR syntax error"),
    ],
)
def test_misuse_of_tevict(run: Commands, words: list[str | int], error: str) -> None:
    run("TWRITE", "k", "t", "e")
    assert run.refused("TEVICT", "k", *words) == error


def test_tcompact(run: Commands) -> None:
    for at in range(35):
        run("TWRITE", "k", f"tag{at % 5}", at)
    assert run("TCOMPACT", "k") == 30
    assert run.quietly("TCOMPACT", "k") == 0
    assert run.offsets("TREAD", "k", 1, 9, "WITHINFO") == [31, 31, 32, 33, 34, 35]
    assert run.offsets("TREAD", "k", 1, 2) == [31, 32]
    assert run("TWRITE", "k", "tag0", "") == 36
    assert run("TCOMPACT", "k") == 1
    run.wait(limits.TOMBSTONE_KEPT_MS + 1)
    assert run("TCOMPACT", "k") == 1
    assert run.offsets("TREAD", "k", 30, 9) == [32, 33, 34, 35]
    assert run.quietly("TCOMPACT", "none") == 0
    before = plain(run.stream())
    run.restart()
    assert plain(run.stream()) == before


def test_backlog_counts_entries_and_not_offsets(run: Commands) -> None:
    for at in range(35):
        run("TWRITE", "k", "same" if at < 30 else "", at)
    assert run("TCOMPACT", "k") == 29
    run("TWRITE", "k", "BACKLOG", 7, "ENTRIES", "t", "e")
    assert len(run.stream()) == 7
    assert run("TEVICT", "k", -7) == 0
    assert run("TEVICT", "k", -6) == 1


# --- TCONFIG ------------------------------------------------------------------------------------------------------


def settings(run: Commands, key: str = "k") -> list[int]:
    """MAXBYTES, MAXAGE and BACKLOG."""
    names, values = (run.quietly("TCONFIG", key)[part::2] for part in (0, 1))
    assert names == [b"max-bytes", b"max-age", b"backlog"]
    return list(values)


def test_tconfig_says_one_at_a_time_and_makes_the_stream(run: Commands) -> None:
    assert run.refused("TCONFIG", "k") == "ERR no such key"
    assert run("TCONFIG", "k", "MAXBYTES", 10**18, "maxage", 5) == b"OK"
    assert (run("TYPE", "k"), run("XLEN", "k")) == (b"stream", 0)
    assert settings(run) == [10**18, 5, 0]
    assert run("TCONFIG", "k", "BACKLOG", 7, "MAXBYTES", 0) == b"OK"
    assert settings(run) == [0, 5, 7]
    assert list(run.store.database(0).ruled) == [b"k"]
    assert run("TCONFIG", "k", "BACKLOG", 0, "MAXAGE", 0) == b"OK"
    assert (settings(run), run.stream().rule, run.store.database(0).ruled) == ([0, 0, 0], None, {})


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["MAXBYTES"], "ERR syntax error"),
        (["MAXBYTES", 1, "MAXBYTES", 2], "ERR syntax error"),
        (["MAXLEN", 1], "ERR syntax error"),
        (["MAXAGE", 1, "BACKLOG"], "ERR syntax error"),
        (["MAXAGE", -1], "ERR MAXAGE must not be negative"),
        (["MAXBYTES", "1gb"], "ERR value is not an integer or out of range"),
        (["BACKLOG", 2**63], "ERR value is not an integer or out of range"),
    ],
)
def test_misuse_of_tconfig(run: Commands, words: list[str | int], error: str) -> None:
    assert run.refused("TCONFIG", "k", *words) == error
    assert run("EXISTS", "k") == 0


def test_tconfig_alone_only_reads() -> None:
    row = find_command(TABLE, [b"TCONFIG", b"k"])
    assert not row.writes([b"TCONFIG", b"k"])
    assert row.writes([b"TCONFIG", b"k", b"MAXAGE", b"1"])


# --- TINFO and the rest -------------------------------------------------------------------------------------------


def test_tinfo(run: Commands) -> None:
    assert run.refused("TINFO", "k") == "ERR no such key"
    run("TWRITE", "k", "PRODUCER", "p", 1, "ENTRIES", *["t", "e"] * 25)
    run("TGROUP", "k", "g", "MAXPENDING", 7, "DEADLETTER", "dead", "MAXDELIVERIES", 3)
    run("TREAD", "k", 0, 4, "GROUP", "g", "RETRY", 500, 0)
    run("TACK", "k", "g", 1)
    run("TCONFIG", "k", "MAXBYTES", 5000, "BACKLOG", 3)
    run.wait(100)
    flat = run.quietly("TINFO", "k")
    info = dict(zip(flat[::2], flat[1::2], strict=True))
    size = info.pop(b"bytes")
    assert size == info.pop(b"memory-bytes") > 25 * 26
    groups = [dict(zip(each[::2], each[1::2], strict=True)) for each in info.pop(b"groups")]
    assert info == {
        b"length": 25,
        b"first-offset": 1,
        b"last-offset": 25,
        b"last-id": b"%d-24" % (run.now_ms - 100),
        b"nodes": 3,
        b"cold-nodes": 0,
        b"disk-bytes": 0,
        b"remote-bytes": 0,
        b"entry-bytes": 25 * (24 + 2),
        b"max-bytes": 5000,
        b"max-age": 0,
        b"backlog": 3,
        b"producers": 1,
    }
    assert groups == [
        {
            b"name": b"g",
            b"last-offset": 4,
            b"ack-offset": 2,
            b"pending": 3,
            b"max-pending": 7,
            b"consumers": 0,
            b"dead-letter": b"dead",
            b"max-deliveries": 3,
            b"due-in-ms": 400,
        }
    ]
    run.protocol = 3
    assert run("TINFO", "k")[b"groups"][0][b"pending"] == 3


def test_a_stream_is_a_value_like_others(run: Commands) -> None:
    run("TWRITE", "k", "ENTRIES", *["t", "e"] * 25)
    run("TREAD", "k", 0, 4, "GROUP", "g", "RETRY", 500, 0)
    before = plain(run.stream())
    assert run("TYPE", "k") == b"stream"
    assert run("OBJECT", "ENCODING", "k") == b"stream"
    assert run("MEMORY", "USAGE", "k") > run.stream().size_bytes
    assert run("COPY", "k", "copy") == 1
    assert run("RENAME", "k", "new") == b"OK"
    assert plain(run.stream(b"copy")) == plain(run.stream(b"new")) == before
    run("TWRITE", "copy", "t", "e")
    run("TACK", "copy", "g", 1)
    assert plain(run.stream(b"new")) == before
    run("PEXPIRE", "new", 1000)
    run.restart()
    assert plain(run.stream(b"new")) == before
    run.wait(1000)
    assert run("TREAD", "new", 1, 1) == []
    assert run("DEL", "copy") == 1


def test_a_copy_refers_to_its_source(run: Commands) -> None:
    run("TWRITE", "k", "PRODUCER", "p", 1, "ENTRIES", *["t", "e" * 1000] * 95)
    run("XDEL", "k", run("XRANGE", "k", "-", "+", "COUNT", 1)[0][0])
    run("TREAD", "k", 0, 4, "GROUP", "g", "RETRY", 500, 9000)
    run("XREADGROUP", "GROUP", "g", "c", "COUNT", 3, "STREAMS", "k", ">")
    run("TWRITE", "other", "t", "e")
    before, writer = plain(run.stream()), run.store.journal.writer
    written = writer.batch_bytes
    assert run("COPY", "k", "other", "REPLACE") == 1
    assert run("RENAME", "k", "new") == b"OK"
    assert run("COPY", "new", "k", "DB", 3) == 1
    assert run("MOVE", "new", 5) == 1
    assert writer.batch_bytes - written < 4000
    for _ in range(2):
        places = (0, b"other"), (3, b"k"), (5, b"new")
        found: list[Stream] = [run.store.database(number).find(key) or Stream() for number, key in places]
        assert [plain(stream) for stream in found] == [before] * 3
        assert run("EXISTS", "k", "new") == 0
        assert run.store.database(5).alarms.times[b"new"] == run.store.database(0).alarms.times[b"other"]
        assert found[0].sealed[3] is found[1].sealed[3] is found[2].sealed[3]
        run.restart()


def test_a_copy_in_another_shard_has_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "NODE_ENTRIES_MAX", 10)
    run = Commands(4)
    owners = run.store.owners
    names = {owners[slot_of(b"t%d" % at)]: b"t%d" % at for at in range(50)}
    assert len(names) == 4
    run("TWRITE", "k", "ENTRIES", *["t", "e" * 100] * 95)
    run("TREAD", "k", 0, 4, "GROUP", "g", "RETRY", 500, 9000)
    before = plain(run.stream())
    for shard, name in names.items():
        written = run.store.journal.writer.batch_bytes
        run("COPY", "k", name)
        assert (run.store.journal.writer.batch_bytes - written < 1000) == (shard == owners[slot_of(b"k")])
    renamed = b"{%b}renamed" % next(iter(names.values()))
    run("RENAME", "k", renamed)
    run.restart()
    for name in (*names.values(), renamed):
        assert plain(run.stream(name)) == before
    assert run("EXISTS", "k") == 0


@pytest.mark.parametrize(
    "words",
    [
        ["TWRITE", "s", "t", "e"],
        ["TREAD", "s", 1, 1],
        ["TREAD", "s", 1, 1, "GROUP", "g", "BLOCK", 0],
        ["TACK", "s", "g", 1],
        ["TEVICT", "s", 1],
        ["TCOMPACT", "s"],
        ["TGROUP", "s", "g"],
        ["TINFO", "s"],
        ["TCONFIG", "s"],
        ["TCONFIG", "s", "MAXAGE", 1],
        ["TGROUP", "k", "g", "DEADLETTER", "s", "MAXDELIVERIES", 1],
    ],
)
def test_other_types_are_refused(run: Commands, words: list[str | int]) -> None:
    run("SET", "s", "value")
    assert run.refused(*words).startswith("WRONGTYPE")
    run("TWRITE", "k", "t", "e")
    assert run.refused("GET", "k").startswith("WRONGTYPE")
