"""Scripts as transactions: what is journaled, joined, refused, counted and disclosed."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

import pytest

from tests.scripting.running import ScriptMachine, script_machine
from tidelog import limits
from tidelog.commands.families import command_table
from tidelog.engine.disclosure import Asked
from tidelog.errors import JournalFull
from tidelog.scripting.callee import Callee
from tidelog.scripting.scripts import scripts_of


def test_a_server_without_scripts_makes_no_interpreter(machine: ScriptMachine) -> None:
    machine("SCRIPT", "EXISTS", "x")
    assert scripts_of(machine.engine)._interpreter is None
    assert machine.scripts.used_bytes == 0


def test_one_transaction_over_shards() -> None:
    with script_machine(shards=4) as machine:
        began = machine.store.journal.writer.last_ts
        machine.eval("for i = 1, 50 do redis.call('SET', 'k' .. i, i) redis.call('RPUSH', 'l' .. i, 'x') end")
        stamps = machine.store.journal.writer.last_ts
        assert stamps > began
        again = machine.recovered()
        assert again.database(0).size == machine.store.database(0).size == 100
        again.journal.close()


def test_effects_stay_after_an_error(machine: ScriptMachine) -> None:
    assert machine.eval("redis.call('SET', 'a', 1) error('no')").startswith("-ERR user_script:1: no")
    again = machine.recovered()
    assert again.database(0).find(b"a") == b"1"
    again.journal.close()


def test_compiled_once(machine: ScriptMachine) -> None:
    sha = machine("SCRIPT", "LOAD", "return 1")
    interpreter = machine.scripts.interpreter()
    function = interpreter.compiled(machine.scripts.of_sha(sha))
    assert machine("EVALSHA", sha, 0) == 1
    assert interpreter.compiled(machine.scripts.of_sha(sha)) is function


def test_scripts_survive_a_new_interpreter(machine: ScriptMachine) -> None:
    sha = machine("SCRIPT", "LOAD", "return 7")
    machine.scripts.limits.time_ms = 50
    assert "was stopped" in machine.eval("while true do end")
    assert machine("EVALSHA", sha, 0) == 7
    machine.scripts.limits.memory_bytes = 2 * limits.SCRIPT_MEMORY_BYTES_MIN
    assert machine("EVALSHA", sha, 0) == 7


def test_memory_that_is_full(machine: ScriptMachine) -> None:
    machine.engine.gate.set_out_of_memory(True)
    oom = "OOM command not allowed when used memory > 'maxmemory'."
    assert machine.eval("return redis.call('SET', 'a', 1)").startswith(f"-{oom}")
    assert machine.eval("return redis.call('DEL', 'a')") == 0
    assert machine.eval("redis.call('DEL', 'a') return redis.call('SET', 'a', 1)") == b"OK"
    flagged = "#!lua flags=allow-oom\nreturn redis.call('SET', 'a', 2)"
    assert machine.eval(flagged) == b"OK"
    assert machine.eval("#!lua\nreturn 1").startswith(f"-{oom}")
    assert machine.eval("#!lua flags=no-writes\nreturn redis.call('GET', 'a')") == b"2"


def test_a_journal_that_takes_no_writes(machine: ScriptMachine) -> None:
    machine.disk.capacity_bytes = machine.disk.used_bytes
    machine.eval("return redis.call('SET', 'a', 1)")
    with pytest.raises(JournalFull):
        machine.store.journal.writer.write()
    assert machine.eval("return redis.call('SET', 'b', 1)").startswith("-MISCONF")
    assert machine.eval("return redis.call('EXISTS', 'a', 'b')") == 1


def test_a_transaction_that_is_too_large(machine: ScriptMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TRANSACTION_BYTES_MAX", 50_000)
    reply = machine.eval("for i = 1, 100 do redis.call('SET', 'k' .. i, string.rep('x', 5000)) end")
    assert "a transaction is too large" in reply
    assert 0 < machine("DBSIZE") < 10


def test_in_multi_it_is_part_of_the_transaction(machine: ScriptMachine) -> None:
    machine("MULTI")
    machine("SET", "a", "1")
    machine("EVAL", "redis.call('SELECT', 2) redis.call('SET', 'other', 1) return redis.call('DBSIZE')", 0)
    machine("SET", "b", "2")
    assert machine("EXEC") == [b"OK", 1, b"OK"]
    assert machine("DBSIZE") == 2
    assert machine.session.database == 0


def test_selecting_inside_is_for_the_script(machine: ScriptMachine) -> None:
    assert machine.eval("redis.call('SELECT', 9) return redis.call('SET', 'k', 1)") == b"OK"
    assert machine.session.database == 0
    assert machine("EXISTS", "k") == 0


def test_a_client_that_leaves_no_trace(machine: ScriptMachine) -> None:
    machine("SET", "k", "v")
    machine.clock.advance(100_000_000)
    machine.store.note_time()
    machine("CLIENT", "NO-TOUCH", "ON")
    machine.eval("return redis.call('GET', 'k')")
    assert machine("OBJECT", "IDLETIME", "k") >= 99
    machine("CLIENT", "NO-TOUCH", "OFF")
    machine.eval("return redis.call('GET', 'k')")
    assert machine("OBJECT", "IDLETIME", "k") < 99


def test_the_slow_log_has_the_script(machine: ScriptMachine) -> None:
    machine.engine.slow_log.threshold_us = 0
    machine.eval("return redis.call('SET', 'k', 1)")
    assert [entry.arguments[0] for entry in machine.engine.slow_log.entries] == [b"EVAL"]


def test_its_reply_may_tell_of_any_key() -> None:
    """While changes of some keys may be lost, a script's reply waits, whichever keys it names."""
    table = command_table()
    for command in ([b"EVAL", b"return 1", b"0"], [b"EVALSHA", b"x", b"1", b"other"], [b"EVAL_RO", b"", b"0"]):
        asked = Asked()
        asked.add([command], set())
        assert asked.may_tell_of(frozenset([b"k"]), table, are_writes_refused=False)
    asked = Asked()
    asked.add([[b"SCRIPT", b"EXISTS", b"x"]], set())
    assert not asked.may_tell_of(frozenset([b"k"]), table, are_writes_refused=False)


def test_log_lines_are_clean(machine: ScriptMachine, caplog: pytest.LogCaptureFixture) -> None:
    machine.eval("redis.log(redis.LOG_WARNING, 'one\\ntwo', 3, {}, string.rep('x', 5000))")
    (record,) = caplog.records
    assert record.getMessage().startswith("one?two 3 xxx")
    assert len(record.getMessage()) <= 1024


def test_a_bug_in_a_command_ends_the_script(machine: ScriptMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.eval("return 1")

    def broken(*_words: object) -> object:
        raise RuntimeError("a bug")

    row = machine.engine.table.find(b"ECHO")
    assert row is not None
    broken_callee = Callee(replace(row, handler=broken), machine.engine.metrics.commands.of("ECHO"))
    monkeypatch.setitem(machine.scripts._host._callees, b"ECHO", broken_callee)
    assert machine.eval("redis.call('SET', 'k', 1) pcall(redis.call, 'ECHO', 'x') return 1") == "-ERR internal error"
    monkeypatch.undo()
    assert machine.eval("return redis.call('GET', 'k')") == b"1"
    again = machine.recovered()
    assert again.database(0).find(b"k") == b"1"  # what it had done is journaled
    again.journal.close()


def test_commands_of_scripts_are_counted(machine: ScriptMachine) -> None:
    machine.eval("redis.call('SET', 'k', 'x') redis.call('SET', 'k', 'x', 'EX', 5) redis.pcall('INCR', 'k')")
    tallies = machine.engine.metrics.commands
    assert (tallies.of("SET").calls, tallies.of("INCR").calls, tallies.of("INCR").failed) == (2, 1, 1)
    assert tallies.of("EVAL").calls == 1


def test_the_scripts_of_an_exec_share_their_time(machine: ScriptMachine) -> None:
    """Nobody else has a go between them."""
    machine.scripts.limits.time_ms = 300
    machine("MULTI")
    for _ in range(4):
        machine("EVAL", "while true do end", 0)
    machine("EVAL", "redis.call('SET', 'k', 1) while true do end", 0)
    machine("EVAL", "return redis.call('SET', 'too', 'late')", 0)
    began_s = perf_counter()
    replies = machine("EXEC")
    took_s = perf_counter() - began_s
    assert all("was stopped" in str(reply) for reply in replies[:4])
    assert machine("EXISTS", "too") == 0, "their time is over"
    assert took_s < 1.5, "not 300 ms for each"
    assert "was stopped" in machine("EVAL", "while true do end", 0)
    assert machine("EVAL", "return redis.call('SET', 'k', 2)", 0) == b"OK", "the next one has its own"


def test_words_with_the_same_hash_are_not_taken_for_ever(machine: ScriptMachine) -> None:
    """Lua looks at every other character of these, and there no hook fires."""
    machine.scripts.limits.time_ms = 100
    words = ["".join(sign + "z" for sign in f"{number:016x}") for number in range(40_000)]
    began_s = perf_counter()
    assert "was stopped" in machine("EVAL", "return #ARGV", 0, *words)
    assert perf_counter() - began_s < 3
    assert machine("EVAL", "return #ARGV", 0, *words[:1000]) == 1000
