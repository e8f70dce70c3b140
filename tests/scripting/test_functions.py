"""Libraries of functions: kept by the journal, loaded when they are needed, protected from each other."""

from __future__ import annotations

from random import Random

import pytest

from tests.scripting.running import ScriptMachine, script_machine
from tidelog import limits
from tidelog.errors import JournalFull
from tidelog.scripting.functions import dump, functions_of, undump

COUNTER = "#!lua name=counter\nlocal n = 0 redis.register_function('count', function() n = n + 1 return n end)"
WRITER = """#!lua name=writer
redis.register_function('write', function(keys, args) return redis.call('SET', keys[1], args[1]) end)"""
ENDLESS = "#!lua name=endless\nredis.register_function('endless', function() while true do end end)"


def test_what_is_local_stays_while_other_libraries_come_and_go(machine: ScriptMachine) -> None:
    assert machine("FUNCTION", "LOAD", COUNTER) == b"counter"
    assert machine("FCALL", "count", 0) == 1
    machine("FUNCTION", "LOAD", WRITER)
    machine("FUNCTION", "DELETE", "writer")
    assert machine("FCALL", "Count", 0) == 2
    machine("FUNCTION", "LOAD", "REPLACE", COUNTER)
    assert machine("FCALL", "count", 0) == 1


@pytest.mark.parametrize("shards", [1, 3])
def test_they_are_journaled(shards: int) -> None:
    with script_machine(shards) as machine:
        machine("FUNCTION", "LOAD", COUNTER)
        machine("SELECT", 3)
        machine("FUNCTION", "LOAD", WRITER)
        assert machine("FCALL", "write", 1, "k", "v") == b"OK"
        machine("FLUSHALL")
        machine("FUNCTION", "DELETE", "counter")
        assert machine.recovered().libraries.codes == {b"writer": WRITER.encode()}


def test_a_function_that_is_stopped_takes_nothing_with_it(machine: ScriptMachine) -> None:
    for code in (COUNTER, ENDLESS):
        machine("FUNCTION", "LOAD", code)
    machine.scripts.limits.time_ms = 20
    assert "was stopped" in machine("FCALL", "endless", 0)
    assert machine("FCALL", "count", 0) == 1, "loaded again"


def test_code_that_runs_too_long_is_refused(machine: ScriptMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LIBRARY_LOAD_MS_MAX", 20)
    machine("FUNCTION", "LOAD", COUNTER)
    assert "FUNCTION LOAD timeout" in machine("FUNCTION", "LOAD", "#!lua name=x\nwhile true do end")
    assert machine("FUNCTION", "STATS")[3][1] == [b"libraries_count", 1, b"functions_count", 1]
    assert machine("FCALL", "count", 0) == 1


def test_a_library_that_met_a_limit_when_it_was_loaded_again_stops_nothing(machine: ScriptMachine) -> None:
    """It takes the interpreter with it, and the others are loaded without it."""
    large = "local t = {} for i = 1, 60000 do t[i] = {i} end"
    machine("FUNCTION", "LOAD", COUNTER)
    machine("FUNCTION", "LOAD", f"#!lua name=large\n{large} redis.register_function('size', function() return #t end)")
    machine("FUNCTION", "LOAD", WRITER)
    assert machine("FCALL", "size", 0) == 60000
    machine.scripts.limits.memory_bytes = 8 << 20
    assert machine("FCALL", "count", 0) == 1
    assert machine("FCALL", "write", 1, "k", "v") == b"OK"
    assert machine("FCALL", "count", 0) == 2, "not loaded again for each call"
    assert "Function not found" in machine("FCALL", "size", 0)
    assert machine("FUNCTION", "LOAD", WRITER.replace("write", "third")) == b"thirdr"
    assert machine("FCALL", "third", 1, "k", "v") == b"OK"
    machine.scripts.limits.memory_bytes = 64 << 20
    assert machine("FCALL", "count", 0) == 1, "a new interpreter"
    machine("FUNCTION", "DELETE", "counter")
    functions_of(machine.engine)._failed[b"large"] = 0.0
    assert machine("FCALL", "size", 0) == 60000, "it is tried again after a while"


def test_a_library_that_is_broken_stops_nothing(machine: ScriptMachine) -> None:
    machine("FUNCTION", "LOAD", COUNTER)
    machine.store.libraries.put(b"broken", b"#!lua name=broken\nthis is not Lua")
    assert machine("FCALL", "count", 0) == 1
    assert [entry[1] for entry in machine("FUNCTION", "LIST")] == [b"counter", b"broken"]
    assert machine("FUNCTION", "DELETE", "broken") == b"OK"


def test_libraries_do_not_see_each_other_or_scripts(machine: ScriptMachine) -> None:
    machine("FUNCTION", "LOAD", "#!lua name=a\nredis.register_function('a', function() redis.hidden = 1 end)")
    assert "readonly" in machine("FCALL", "a", 0)
    machine(
        "FUNCTION", "LOAD", "#!lua name=b\nredis.register_function('b', function() rawset(_G, 'x', 1) return x end)"
    )
    assert machine("FCALL", "b", 0).startswith("-")
    assert "nonexistent global variable 'x'" in machine.eval("return x")


def test_there_are_limits(machine: ScriptMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine("FUNCTION", "LOAD", COUNTER)
    many = "#!lua name=many\nfor i = 1, 1001 do redis.register_function('f' .. i, function() end) end"
    assert "a library has at most 1000 functions" in machine("FUNCTION", "LOAD", many)
    monkeypatch.setattr(limits, "LIBRARIES_MAX", 1)
    assert "at most 1 libraries" in machine("FUNCTION", "LOAD", WRITER)
    assert machine("FUNCTION", "LOAD", "REPLACE", COUNTER) == b"counter"
    monkeypatch.setattr(limits, "LIBRARIES_BYTES_MAX", 10)
    assert "10 bytes in all" in machine("FUNCTION", "LOAD", "REPLACE", COUNTER)


def test_memory_that_is_full(machine: ScriptMachine) -> None:
    machine("FUNCTION", "LOAD", WRITER)
    machine.engine.gate.set_out_of_memory(True)
    assert machine("FUNCTION", "LOAD", COUNTER).startswith("-OOM")
    assert machine("FCALL", "write", 1, "k", "v").startswith("-OOM")
    assert machine("FUNCTION", "DELETE", "writer") == b"OK"


def test_dump_and_restore(machine: ScriptMachine) -> None:
    machine("FUNCTION", "LOAD", COUNTER)
    machine("FUNCTION", "LOAD", WRITER)
    data = machine("FUNCTION", "DUMP")
    assert machine("FUNCTION", "RESTORE", data) == "-ERR Library counter already exists"
    assert machine("FUNCTION", "RESTORE", data, "REPLACE") == b"OK"
    machine("FUNCTION", "LOAD", ENDLESS)
    assert machine("FUNCTION", "RESTORE", data, "flush") == b"OK"
    assert [entry[1] for entry in machine("FUNCTION", "LIST")] == [b"counter", b"writer"]
    machine("FUNCTION", "FLUSH")
    other = "#!lua name=other\nredis.register_function('count', function() end)"
    machine("FUNCTION", "LOAD", other)
    assert machine("FUNCTION", "RESTORE", data) == "-ERR Function count already exists"
    assert [entry[1] for entry in machine("FUNCTION", "LIST")] == [b"other"], "all of them or none"


def test_what_is_restored_counts_together(machine: ScriptMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    same = "#!lua name=same\nredis.register_function('Count', function() end)"
    both = dump([COUNTER.encode(), same.encode()])
    for policy in ("APPEND", "REPLACE", "FLUSH"):
        assert machine("FUNCTION", "RESTORE", both, policy) == "-ERR Function Count already exists"
    machine("FUNCTION", "LOAD", ENDLESS)
    data = dump([COUNTER.encode(), WRITER.encode()])
    monkeypatch.setattr(limits, "LIBRARIES_MAX", 2)
    assert "at most 2 libraries" in machine("FUNCTION", "RESTORE", data)
    monkeypatch.setattr(limits, "LIBRARIES_LOAD_MS_MAX", 0)
    assert "more than 0 ms to load" in machine("FUNCTION", "RESTORE", data, "FLUSH")
    assert [entry[1] for entry in machine("FUNCTION", "LIST")] == [b"endless"]
    monkeypatch.undo()
    monkeypatch.setattr(limits, "LIBRARIES_MAX", 2)
    assert machine("FUNCTION", "RESTORE", data, "FLUSH") == b"OK", "what goes takes no room"
    assert [entry[1] for entry in machine("FUNCTION", "LIST")] == [b"counter", b"writer"]


def test_payloads_that_are_not_ours_are_refused(machine: ScriptMachine) -> None:
    random, data = Random(1), dump([b"#!lua name=a\n", b"b"])
    assert undump(data) == [b"#!lua name=a\n", b"b"]
    wrong = "-ERR DUMP payload version or checksum are wrong"
    for cut in range(len(data)):
        assert machine("FUNCTION", "RESTORE", data[:cut]) == wrong
    for _ in range(50):
        at = random.randrange(len(data))
        assert machine("FUNCTION", "RESTORE", data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]) == wrong


def test_a_journal_that_takes_no_writes(machine: ScriptMachine) -> None:
    machine.disk.capacity_bytes = machine.disk.used_bytes
    machine("SET", "a", 1)
    with pytest.raises(JournalFull):
        machine.store.journal.writer.write()
    assert machine("FUNCTION", "LOAD", COUNTER).startswith("-MISCONF")
    assert machine("FUNCTION", "LIST") == []


def test_all_of_them_are_loaded_within_a_bound(machine: ScriptMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever an interpreter is new they are loaded again, and everybody waits for it."""
    monkeypatch.setattr(limits, "LIBRARIES_LOAD_MS_MAX", 200)
    busy = "local n = 0 while n < 3000000 do n = n + 1 end redis.register_function('f%d', function() return %d end)"
    codes = [f"#!lua name=busy{n}\n{busy % (n, n)}" for n in range(30)]
    replies = [machine("FUNCTION", "LOAD", code) for code in codes]
    assert replies[0] == b"busy0"
    assert replies[-1] == "-ERR the libraries take more than 200 ms to load"
    assert machine("FUNCTION", "RESTORE", dump([code.encode() for code in codes]), "REPLACE") == replies[-1]
    assert machine("FUNCTION", "FLUSH") == b"OK"
    assert machine("FUNCTION", "LOAD", COUNTER) == b"counter"
    assert machine("FUNCTION", "RESTORE", dump([code.encode() for code in codes])) == replies[-1]
    assert machine("FUNCTION", "LOAD", "REPLACE", COUNTER) == b"counter"


def test_libraries_that_fill_the_memory(machine: ScriptMachine) -> None:
    """Arguments that find no room in Lua would end the process."""
    machine.scripts.limits.memory_bytes = limits.SCRIPT_MEMORY_BYTES_MIN
    large = b"x" * (limits.SCRIPT_MEMORY_BYTES_MIN // 4 - 200)
    keeper = "#!lua name=keeper\nlocal t = {('x'):rep(2^19)} for i = 2, %d do t[i] = t[1] .. i end"
    keeper += " redis.register_function('kept', function(keys, args) return #args[1] end)"
    for count in range(1, 20):
        machine("FUNCTION", "LOAD", "REPLACE", keeper % count)
        assert machine("FCALL", "kept", 0, large) == len(large)
    assert "not enough memory" in machine("FUNCTION", "LOAD", "REPLACE", keeper % 13)
    grower = "#!lua name=grower\nlocal t = {} redis.register_function('grow', function(keys, args)"
    grower += " t[#t + 1] = ('x'):rep(2^18) .. #t return #args[1] end)"
    machine("FUNCTION", "FLUSH")
    machine("FUNCTION", "LOAD", grower)
    for _ in range(100):
        assert machine("FCALL", "grow", 0, large) == len(large)
