"""What concerns the whole server, on Tidelog and on a real Redis, over sockets."""

from __future__ import annotations

import time
from typing import Any, Final

import pytest

from tests.conformance.redis_7_2 import LATER_ARITIES, LATER_CLIENT_FIELDS, LATER_FLAGS, flags_of
from tests.conformance.redis_oracle import SHAPE, UNORDERED, Item
from tests.conformance.socket_pair import Both, Connection
from tidelog.commands.families import command_table

REFUSED: Final = """
CLIENT KILL 1.2.3.4:5
CLIENT KILL ID x
CLIENT KILL ID 0
CLIENT KILL TYPE foo
CLIENT KILL SKIPME maybe ID 1
CLIENT KILL ADDR a LADDR
CLIENT KILL USER nobody ID 99
CLIENT KILL ID 99999
CLIENT KILL USER default ID 99999
CLIENT KILL FOO bar
CLIENT KILL ADDR 1:1 SKIPME yes
CLIENT KILL LADDR 1:1
CLIENT KILL TYPE master
CLIENT KILL
CLIENT PAUSE x
CLIENT PAUSE -1
CLIENT PAUSE 1 FOO
CLIENT PAUSE 99999999999999999999
CLIENT PAUSE 10 WRITE x
CLIENT UNPAUSE
CLIENT NO-EVICT x
CLIENT NO-EVICT on
CLIENT NO-EVICT off
CLIENT UNBLOCK x
CLIENT UNBLOCK 3 FOO
CLIENT UNBLOCK 3
CLIENT UNBLOCK 3 ERROR
CLIENT TRACKINGINFO
CLIENT GETREDIR
CLIENT TRACKING off
CLIENT CACHING yes
CLIENT CACHING no
CLIENT CACHING x
CLIENT LIST TYPE foo
CLIENT LIST TYPE master
CLIENT LIST ID x
CLIENT LIST ID
CLIENT LIST FOO
CLIENT LIST ID 9999
CLIENT INFO x
CLIENT HELP
CONFIG GET
CONFIG GET nope
CONFIG GET maxmemory
CONFIG GET MAXMEMORY
CONFIG GET databases
CONFIG GET maxmemory maxmemory
CONFIG GET MaxMemory-policy
CONFIG GET hz
CONFIG SET nope 1
CONFIG SET maxmemory
CONFIG SET maxmemory abc
CONFIG SET maxmemory -1
CONFIG SET maxmemory 1.5gb
CONFIG SET maxmemory 10%
CONFIG SET databases 3
CONFIG SET maxmemory 1 maxmemory 2
CONFIG SET maxmemory 1 hz
CONFIG SET timeout -1
CONFIG SET timeout x
CONFIG SET slowlog-max-len -5
CONFIG SET MaxMemory 0
CONFIG SET appendfsync everysec
CONFIG SET hz 10 maxmemory 0
CONFIG RESETSTAT
CONFIG HELP
SLOWLOG GET x
SLOWLOG GET -2
SLOWLOG GET 1 2
SLOWLOG HELP
INFO nosuch
INFO cluster
INFO CLUSTER nosuch
COMMAND GETKEYS get
COMMAND GETKEYS
COMMAND GETKEYS nosuch a
COMMAND GETKEYS ping a
COMMAND GETKEYS mget a b
COMMAND GETKEYS mset a b c d
COMMAND GETKEYS zunionstore d 2 a b
COMMAND GETKEYS zunionstore d 5 a b
COMMAND GETKEYS set a
COMMAND GETKEYS memory usage k
COMMAND GETKEYS xadd s * a b
COMMAND GETKEYS xread streams a b 0 0
COMMAND GETKEYS xread count 2 block 5 streams a 0
COMMAND GETKEYS xread count 2 streams a b 0
COMMAND GETKEYS xread count 2 block 5
COMMAND GETKEYS xreadgroup group streams c streams a b 0 0
COMMAND GETKEYS xreadgroup group g c count 1 noack streams a >
COMMAND GETKEYS xgroup create k g 0
COMMAND GETKEYS xinfo stream k full
COMMAND GETKEYS xgroup help
COMMAND GETKEYS config get a
COMMAND LIST FILTERBY ACLCAT transaction
COMMAND LIST FILTERBY ACLCAT nosuch
COMMAND LIST FILTERBY MODULE x
COMMAND LIST FILTERBY FOO x
COMMAND LIST FOO
COMMAND LIST FILTERBY PATTERN config|g*
COMMAND LIST FILTERBY PATTERN config
COMMAND LIST FILTERBY PATTERN slowl?g
COMMAND INFO nosuch
COMMAND DOCS nosuch
COMMAND COUNT x
MEMORY USAGE nothing
MEMORY USAGE a SAMPLES
MEMORY USAGE a SAMPLES x
MEMORY USAGE a SAMPLES -1
MEMORY USAGE a FOO 1
MEMORY
MEMORY FOO
FLUSHALL FOO
FLUSHALL ASYNC
FLUSHDB SYNC
FLUSHDB ASYNC x
DEBUG SLEEP x
DEBUG SLEEP
DEBUG FOO
DEBUG SLEEP 0
SHUTDOWN FOO
SHUTDOWN ABORT
SHUTDOWN SAVE NOSAVE
SHUTDOWN ABORT NOW
TIME x
DBSIZE x
DBSIZE
BGSAVE FOO
BGSAVE SCHEDULE x
ROLE x
"""


@pytest.mark.parametrize("command", REFUSED.strip().splitlines())
def test_replies(link: Connection, command: str) -> None:
    link(*command.split(), order=UNORDERED if "LIST" in command or command.startswith("ROLE") else _exact)


def _exact(item: Item) -> Any:
    return UNORDERED(item) if item.mark == "%" else item


@pytest.mark.parametrize("command", ["TIME", "LASTSAVE", "CLIENT ID", "CLIENT INFO", "CLIENT LIST", "SLOWLOG LEN"])
def test_shapes(link: Connection, command: str) -> None:
    link(*command.split(), order=SHAPE)


def test_client_list_has_the_fields_of_redis(both: Both, protocol: int) -> None:
    link = both.connect(protocol)
    link("CLIENT", "SETNAME", "me")
    both.connect()("SUBSCRIBE", "news")
    theirs, ours = ([_fields(line) for line in reply.decode().splitlines()] for reply in link.each("CLIENT", "LIST"))
    same = ("name", "db", "sub", "psub", "ssub", "multi", "cmd", "user", "redir", "resp", "events")
    for their, our in zip(theirs[-3:], ours[-3:], strict=True):
        assert [*(name for name in their if name not in LATER_CLIENT_FIELDS), *LATER_CLIENT_FIELDS] == list(our)
        assert {name: their[name] for name in same} == {name: our[name] for name in same}
    assert theirs[-1]["flags"] == ours[-1]["flags"] == "P"


def test_client_list_tells_what_a_client_has_sent_and_takes(both: Both) -> None:
    link, half = both.connect(), both.connect()
    link("CLIENT", "SETNAME", "asks")
    half("CLIENT", "SETNAME", "half")
    for line in (half.redis, half.tidelog):
        line.socket.sendall(b"*2\r\n$3\r\nGET\r\n$5000\r\n" + b"x" * 4000)
    found: list[dict[str, dict[str, str]]] = []
    for _ in range(200):  # until both have read it
        replies = link.each("CLIENT", "LIST")
        found = [{line["name"]: line for line in map(_fields, reply.decode().splitlines())} for reply in replies]
        if all(int(each["half"]["qbuf"]) >= 4000 for each in found):
            break
        time.sleep(0.02)
    theirs, ours = found
    assert (ours["asks"]["qbuf"], ours["asks"]["argv-mem"]) == (theirs["asks"]["qbuf"], theirs["asks"]["argv-mem"])
    for each in found:
        assert 4000 <= int(each["half"]["qbuf"]) < 5000
        assert int(each["half"]["tot-mem"]) > int(each["half"]["qbuf"]) + 1000
        assert int(each["asks"]["tot-mem"]) > 1000


def test_what_a_library_tells_of_itself_is_shown(both: Both) -> None:
    link = both.connect()
    link.tidelog.send([b"CLIENT", b"SETINFO", b"LIB-NAME", b"some-lib(x)"])
    link.tidelog.send([b"CLIENT", b"SETINFO", b"lib-ver", b"1.2.3"])
    link.tidelog.send([b"CLIENT", b"SETINFO", b"lib-ver", b"1 2"])
    link.tidelog.send([b"CLIENT", b"INFO"])
    replies = [link.tidelog.read()[1] for _ in range(4)]
    assert replies[:2] == [b"+OK\r\n"] * 2
    assert replies[2] == b"-ERR lib-ver cannot contain spaces, newlines or special characters.\r\n"
    assert b" lib-name=some-lib(x) lib-ver=1.2.3\n" in replies[3]


def test_idle_times(both: Both) -> None:
    link = both.connect()
    for key in ("used", "idle", "asked"):
        link("SET", key, "value")
    time.sleep(2.5)
    link("GET", "used")
    for command in ("EXISTS", "TYPE", "TTL", "OBJECT ENCODING", "MEMORY USAGE"):
        link(*command.split(), "asked", order=SHAPE)
    link("KEYS", "*", order=UNORDERED)
    for key, low, high in (("used", 0, 1), ("idle", 2, 60), ("asked", 2, 60)):
        for idle in link.each("OBJECT", "IDLETIME", key):
            assert low <= idle <= high, key
    quiet = both.connect().tidelog
    for words in (["CLIENT", "NO-TOUCH", "ON"], ["GET", "idle"], ["MULTI"], ["GET", "idle"], ["EXEC"]):
        quiet.send([word.encode() for word in words])
        quiet.read()
    assert min(link.each("OBJECT", "IDLETIME", "idle")) >= 2
    for words in (["TOUCH", "idle"], ["CLIENT", "NO-TOUCH", "OFF"], ["GET", "asked"]):
        quiet.send([word.encode() for word in words])
        quiet.read()
    link("TOUCH", "idle", "asked")
    assert max(link.each("OBJECT", "IDLETIME", "idle")) <= 1
    assert max(link.each("OBJECT", "IDLETIME", "asked")) <= 1


def _fields(line: str) -> dict[str, str]:
    return dict(field.split("=", 1) for field in line.split(" "))


def test_killing(both: Both) -> None:
    killer = both.connect()
    for form in (
        "CLIENT KILL ID {id}",
        "CLIENT KILL ADDR {addr}",
        "CLIENT KILL {addr}",
        "CLIENT KILL TYPE normal ID {id}",
    ):
        victim = both.connect()
        infos = [_fields(reply.decode().strip()) for reply in victim.each("CLIENT", "INFO")]
        for line, info in zip((killer.redis, killer.tidelog), infos, strict=True):
            line.send([word.encode() for word in form.format(**info).split()])
        killer.read()
        assert victim.is_closed()
    both.connect()("SUBSCRIBE", "news")
    assert killer("CLIENT", "KILL", "TYPE", "pubsub") == 1


def test_killing_oneself(both: Both) -> None:
    link = both.connect()
    numbers = link.each("CLIENT", "ID")
    for line, number in zip((link.redis, link.tidelog), numbers, strict=True):
        line.send([b"CLIENT", b"KILL", b"ID", b"%d" % number, b"SKIPME", b"no"])
    assert link.read() == 1
    assert link.is_closed()


def test_pausing_writes(both: Both) -> None:
    reader, writer, other = both.connect(), both.connect(), both.connect()
    both.admin("CLIENT", "PAUSE", 10_000, "WRITE")
    reader("GET", "a")
    writer.send_bytes(b"PING\r\nSET a 1\r\nGET a\r\nSET a 2\r\n")
    writer.read()
    other.send_bytes(b"MULTI\r\nGET a\r\nEXEC\r\nMULTI\r\nSET b 1\r\nEXEC\r\nPUBLISH x y\r\n")
    for _ in range(4):
        other.read()
    assert writer.is_quiet()
    assert other.is_quiet()
    reader("GET", "a")
    both.admin("CLIENT", "UNPAUSE")
    for _ in range(3):
        writer.read()
    for _ in range(3):
        other.read()


def test_pausing_everything(both: Both) -> None:
    link = both.connect()
    began = time.monotonic()
    both.admin("CLIENT", "PAUSE", 300)
    link.send_bytes(b"PING\r\nGET a\r\n")
    assert link.is_quiet()
    link.read()
    link.read()
    assert time.monotonic() - began > 0.25


def test_a_pause_is_not_shortened(both: Both) -> None:
    began = time.monotonic()
    both.admin("CLIENT", "PAUSE", 400, "WRITE")
    both.admin("CLIENT", "PAUSE", 1, "WRITE")
    both.connect()("SET", "a", 1)
    assert time.monotonic() - began > 0.3


def test_flushing(both: Both) -> None:
    link = both.connect()
    for database in (0, 3):
        link("SELECT", database)
        link("MSET", "a", 1, "b", 2)
        link("EXPIRE", "a", 100)
    link("DBSIZE")
    link("FLUSHDB")
    link("DBSIZE")
    link("SELECT", 0)
    link("DBSIZE")
    link("FLUSHALL")
    link("DBSIZE")
    link("SET", "a", 1)
    link("TTL", "a")


def test_setting_what_can_be_set(both: Both) -> None:
    link = both.connect()
    for name, value, after in (
        ("maxmemory", "100gb", "0"),
        ("timeout", "100", "0"),
        ("slowlog-log-slower-than", "-1", "10000"),
        ("slowlog-max-len", "5", "128"),
        ("maxclients", "5000", "10000"),
        ("client-output-buffer-limit", "pubsub 1mb 512kb 10", "pubsub 32mb 8mb 60"),
    ):
        link("CONFIG", "SET", name, value)
        if name != "client-output-buffer-limit":
            link("CONFIG", "GET", name)
        link("CONFIG", "SET", name, after)


def test_slow_log(both: Both, protocol: int) -> None:
    link = both.connect(protocol)
    link("CONFIG", "SET", "slowlog-log-slower-than", 0)
    link("SLOWLOG", "RESET")
    link("CLIENT", "SETNAME", "slow")
    link("MSET", *[word for number in range(20) for word in (f"k{number}", "v" * 200)])
    link("MULTI")
    link("GETSET", "k1", "w")
    link("EXEC")
    link("SET", "k1", "v")
    link("GET", "k1")
    link("CONFIG", "SET", "slowlog-log-slower-than", 10000)
    theirs, ours = link.each("SLOWLOG", "GET", -1)
    assert [entry[3] for entry in ours if entry[3][0] == b"MSET"] == [e[3] for e in theirs if e[3][0] == b"MSET"]
    assert {len(entry) for entry in theirs + ours} == {6}
    assert [entry[3][0] for entry in ours] == [entry[3][0] for entry in theirs]
    assert ours[0][5] == theirs[0][5] == b"slow"
    link("SLOWLOG", "RESET")
    link("SLOWLOG", "LEN")


def test_info_has_what_tools_look_for(both: Both, protocol: int) -> None:
    theirs, ours = both.connect(protocol).each("INFO")
    for name in (
        *("redis_version", "redis_mode", "process_id", "run_id", "tcp_port", "uptime_in_seconds", "connected_clients"),
        *("maxclients", "blocked_clients", "used_memory", "used_memory_human", "used_memory_rss", "used_memory_peak"),
        *("maxmemory", "maxmemory_policy", "mem_fragmentation_ratio", "loading", "rdb_bgsave_in_progress"),
        *("rdb_last_save_time", "aof_enabled", "total_connections_received", "total_commands_processed"),
        *("instantaneous_ops_per_sec", "rejected_connections", "expired_keys", "evicted_keys", "pubsub_channels"),
        *("role", "connected_slaves", "master_replid", "used_cpu_sys", "used_cpu_user", "cluster_enabled"),
    ):
        assert f"\n{name}:".encode() in theirs, name
        assert f"\n{name}:".encode() in ours, name
    heads = [line for line in theirs.splitlines() if line.startswith(b"# ")]
    more = [b"# Tidelog", b"# Feeds", b"# Streams", b"# Shipping", b"# History"]
    assert [line for line in ours.splitlines() if line.startswith(b"# ")] == [*heads, *more]


def test_keyspace_section(both: Both) -> None:
    link = both.connect()
    link("MSET", "a", 1, "b", 2)
    link("INFO", "keyspace")


def test_keyspace_section_with_expiries(both: Both) -> None:
    link = both.connect()
    link("SELECT", 5)
    link("SET", "a", 1, "EX", 100)
    theirs, ours = link.each("INFO", "keyspace")
    assert theirs.partition(b",avg_ttl")[0] == ours.partition(b",avg_ttl")[0]


@pytest.mark.parametrize("row", command_table().rows(), ids=lambda row: row.name)
def test_command_info(both: Both, protocol: int, row: Any) -> None:
    """All that COMMAND INFO says, but for tips and key specifications."""
    theirs, ours = both.connect(protocol).each("COMMAND", "INFO", row.name.lower())
    if theirs == [None]:
        pytest.skip("Redis 7.0 has no such command")
    [their], [our] = theirs, ours
    assert our[:2] == [their[0], LATER_ARITIES.get(row.name, their[1])]
    assert {flag.decode() for flag in our[2]} == flags_of(row.name, {flag.decode() for flag in their[2]})
    assert our[3:6] == their[3:6]
    blocking = {b"@blocking"} if row.name in LATER_FLAGS else set()
    assert set(our[6]) == set(their[6]) | blocking


def test_command_docs_of_all(both: Both, protocol: int) -> None:
    _, ours = both.connect(protocol).each("COMMAND", "DOCS")
    names = list(ours) if isinstance(ours, dict) else ours[::2]
    assert {b"get", b"config", b"multi"} <= set(names)


def test_command_count_is_the_length_of_command(both: Both) -> None:
    link = both.connect()
    for commands, count in zip(link.each("COMMAND"), link.each("COMMAND", "COUNT"), strict=True):
        assert len(commands) == count
    for names in link.each("COMMAND", "LIST"):
        assert len(set(names)) == len(names)


def test_command_list_has_containers(both: Both) -> None:
    link = both.connect()
    for words in (["PATTERN", "*"], ["PATTERN", "x*"], ["ACLCAT", "slow"], ["PATTERN", "CLIENT"]):
        theirs, ours = (set(names) for names in link.each("COMMAND", "LIST", "FILTERBY", *words))
        containers = {b"client", b"xinfo", b"config", b"object", b"command"} & theirs
        assert containers == {b"client", b"xinfo", b"config", b"object", b"command"} & ours
        assert containers
