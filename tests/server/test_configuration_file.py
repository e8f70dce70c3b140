"""CONFIG REWRITE: what has changed is in the file, and all else is as it was, comments and order too."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

import pytest
import redis

from tests.integration.server_process import ServerProcess
from tidelog.errors import ClientError
from tidelog.server.configuration import configure
from tidelog.server.configuration_file import ConfigurationFile

ROOT = Path(__file__).resolve().parents[2]


def rewritten(path: Path, text: str, values: dict[str, str], changed: list[str] | None = None) -> str:
    path.write_bytes(text.encode())
    file = ConfigurationFile(str(path))
    for name in values if changed is None else changed:
        file.changed(name)
    file.rewrite(values)
    return path.read_bytes().decode()


@pytest.mark.parametrize(
    ("before", "values", "after"),
    [
        ('maxmemory = "1gb"  # half\n', {"maxmemory": "5"}, "maxmemory = 5  # half\n"),
        ("maxmemory = 1\nport = 1\n", {"maxmemory": "5"}, "maxmemory = 5\nport = 1\n"),
        ("  'maxmemory'=1#x\n", {"maxmemory": "5"}, "  'maxmemory'=5#x\n"),
        ("port = 1\n", {"maxmemory": "5"}, "port = 1\nmaxmemory = 5\n"),
        ("port = 1", {"maxmemory": "5"}, "port = 1\nmaxmemory = 5\n"),
        ("", {"maxmemory": "5"}, "maxmemory = 5\n"),
        ("# maxmemory = 0\nport = 1\n", {"maxmemory": "5"}, "# maxmemory = 0\nmaxmemory = 5\nport = 1\n"),
        ("#maxmemory = 0", {"maxmemory": "5"}, "#maxmemory = 0\nmaxmemory = 5"),
        ("# a\r\nport = 1\r\n", {"timeout": "5"}, "# a\r\nport = 1\r\ntimeout = 5\r\n"),
        ("# timeout = 1\r\nport = 1\r\n", {"timeout": "5"}, "# timeout = 1\r\ntimeout = 5\r\nport = 1\r\n"),
        ("timeout = 1\r\nport = 1\r\n", {"timeout": "5"}, "timeout = 5\r\nport = 1\r\n"),
        ("replica-announced = true\n", {"replica-announced": "no"}, "replica-announced = false\n"),
        ('replica-announced = "yes"\n', {"replica-announced": "no"}, "replica-announced = false\n"),
        ("", {"replica-announce-ip": '1"\\'}, 'replica-announce-ip = "1\\"\\\\"\n'),
        ("replica-announce-ip = 'a#b' # c", {"replica-announce-ip": ""}, 'replica-announce-ip = "" # c'),
        ("script-memory-limit = '8mb'\n", {"script-memory-limit": "16777216"}, 'script-memory-limit = "16777216"\n'),
        ("", {"lua-time-limit": "7"}, "script-time-limit = 7\n"),
        ("", {"list-max-listpack-size": "-5"}, "list-max-listpack-size = -5\n"),
        ("set-max-intset-entries = 1 # x\n", {"set-max-intset-entries": "9"}, "set-max-intset-entries = 9 # x\n"),
        ('http-hosts = [\n  "a",\n]\n', {"timeout": "7"}, 'http-hosts = [\n  "a",\n]\ntimeout = 7\n'),
        ('maxmemory = "1gb"\n', {"maxmemory": str(1 << 30)}, 'maxmemory = "1gb"\n'),
    ],
)
def test_lines(tmp_path: Path, before: str, values: dict[str, str], after: str) -> None:
    assert rewritten(tmp_path / "t.toml", before, values) == after


def test_nothing_is_written_that_has_not_changed(tmp_path: Path) -> None:
    text = "maxmemory = 1\n"
    assert rewritten(tmp_path / "t.toml", text, {"maxmemory": "5", "timeout": "9"}, ["timeout"]) == (
        "maxmemory = 1\ntimeout = 9\n"
    )
    assert rewritten(tmp_path / "t.toml", text, {"maxmemory": "5"}, []) == text


@pytest.mark.parametrize(
    ("before", "leader", "after"),
    [
        ('replicaof = "a:1"  # the other\n', "b 2", 'replicaof = "b:2"  # the other\n'),
        ('replicaof = "a:1"\n', "::1 2", 'replicaof = "[::1]:2"\n'),
        ('replicaof = "a:1"\n', "a 1", 'replicaof = "a:1"\n'),
        ('port = 1\nreplicaof = "a:1"\n', "", 'port = 1\n# replicaof = "a:1"\n'),
        ("port = 1\n", "b 2", "port = 1\n"),
    ],
)
def test_the_leader_is_put_right_where_it_stands(tmp_path: Path, before: str, leader: str, after: str) -> None:
    assert rewritten(tmp_path / "t.toml", before, {"replicaof": leader}, []) == after


@pytest.mark.parametrize(
    "text",
    [
        'channel-rules = """\ntimeout = 1\n"""\n',
        "timeout = 1_0\n[a\n",
        "port = \n",
        'timeout = """1"""\n',
    ],
)
def test_a_file_that_cannot_be_changed_stays(tmp_path: Path, text: str) -> None:
    with pytest.raises(ClientError, match="change it by hand"):
        rewritten(tmp_path / "t.toml", text, {"timeout": "5"})
    assert (tmp_path / "t.toml").read_text() == text
    assert os.listdir(tmp_path) == ["t.toml"]


def test_the_file_of_the_checkout_can_be_rewritten(tmp_path: Path) -> None:
    values = {"maxmemory": "7", "replica-priority": "0", "replica-serve-stale-data": "no", "retain-age": "60"}
    text = (ROOT / "tidelog.toml").read_text()
    after = rewritten(tmp_path / "t.toml", text, values)
    assert [line for line in after.splitlines() if line not in text.splitlines()] == [
        "maxmemory = 7",
        "retain-age = 60",
        "replica-priority = 0",
        "replica-serve-stale-data = false",
    ]
    found = configure({}, {}, str(tmp_path / "t.toml"), lambda _: False)
    assert (found.maxmemory, found.priority, found.serves_stale_data, found.retain_age_us) == (7, 0, False, 60_000_000)


def test_what_the_file_cannot_keep_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "t.toml").write_text("port = 1\n")
    file = ConfigurationFile(str(tmp_path / "t.toml"), frozenset(["timeout"]))
    for name in ("timeout", "requirepass", "slowlog-max-len", "maxmemory"):
        file.changed(name)
    values = {"timeout": "5", "requirepass": "(redacted)", "slowlog-max-len": "5", "maxmemory": "5"}
    with caplog.at_level(logging.WARNING, "tidelog"):
        file.rewrite(values)
    assert caplog.messages[0].endswith("cannot keep it: requirepass, slowlog-max-len, timeout")
    assert (tmp_path / "t.toml").read_text() == "port = 1\nmaxmemory = 5\ntimeout = 5\n"


def test_a_link_stays_a_link_and_the_mode_stays(tmp_path: Path) -> None:
    (tmp_path / "real.toml").write_text("port = 1\n")
    (tmp_path / "real.toml").chmod(0o640)
    (tmp_path / "t.toml").symlink_to("real.toml")
    file = ConfigurationFile(str(tmp_path / "t.toml"))
    file.changed("timeout")
    file.rewrite({"timeout": "5"})
    assert (tmp_path / "t.toml").is_symlink()
    assert (tmp_path / "real.toml").read_text() == "port = 1\ntimeout = 5\n"
    assert stat.S_IMODE((tmp_path / "real.toml").stat().st_mode) == 0o640
    assert sorted(os.listdir(tmp_path)) == ["real.toml", "t.toml"]


def test_a_server_with_a_file_and_one_without(tmp_path: Path) -> None:
    path = tmp_path / "some.toml"
    path.write_text("# ours\nmaxclients = 50  # few\n")
    with ServerProcess(tmp_path / "data", "--config", str(path)) as server, server.client() as client:
        assert client.info("server")["config_file"] == str(path)
        assert client.config_rewrite()
        assert path.read_text() == "# ours\nmaxclients = 50  # few\n"
        client.config_set("maxclients", 40)
        client.config_set("slave-priority", 7)
        client.config_set("min-slaves-to-write", 0)
        assert client.config_get("replica-priority") == {"replica-priority": "7"}
        assert client.config_rewrite()
        assert path.read_text() == ("# ours\nmaxclients = 40  # few\nmin-replicas-to-write = 0\nreplica-priority = 7\n")
    with ServerProcess(tmp_path / "data", "--config", str(path)) as server, server.client() as client:
        assert client.config_get("slave-priority") == {"slave-priority": "7"}
        assert client.config_get("maxclients") == {"maxclients": "40"}
    without = pytest.raises(redis.ResponseError, match="The server is running without a config file")
    with ServerProcess(tmp_path / "other") as server, server.client() as client, without:
        client.config_rewrite()


BOUNDS = {
    "hash-max-listpack-entries": "1",
    "hash-max-listpack-value": "2",
    "set-max-intset-entries": "3",
    "set-max-listpack-entries": "4",
    "set-max-listpack-value": "5",
    "zset-max-listpack-entries": "6",
    "zset-max-listpack-value": str(2**63 - 1),
    "list-max-listpack-size": "-5",
}


def test_bounds_of_encodings_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "some.toml"
    path.write_text("# ours\n")
    options = "--config", str(path)
    with ServerProcess(tmp_path / "data", *options) as server, server.client(decode_responses=True) as client:
        defaults = client.config_get("*-max-*")
        for name, value in BOUNDS.items():
            assert defaults[name] != value
            old_name = name.replace("listpack", "ziplist") if name.startswith(("hash", "zset", "list")) else name
            client.config_set(old_name, value)
        client.hset("h", mapping={"a": "1", "b": "2"})
        assert client.object("encoding", "h") == "hashtable"
        assert client.config_rewrite()
    lines = [f"{name} = {value}" for name, value in sorted(BOUNDS.items())]
    assert path.read_text().splitlines() == ["# ours", *lines]
    with ServerProcess(tmp_path / "data", *options) as server, server.client(decode_responses=True) as client:
        assert BOUNDS.items() <= client.config_get("*-max-*").items()
        client.hset("new", mapping={"a": "1", "b": "2"})
        assert client.object("encoding", "new") == "hashtable"
    more = "--hash-max-listpack-entries", "2"
    with ServerProcess(tmp_path / "data", *options, *more) as server, server.client(decode_responses=True) as client:
        assert client.config_get("hash-max-listpack-entries") == {"hash-max-listpack-entries": "2"}
        client.hset("new", "c", "3")
        client.hset("other", mapping={"a": "1", "b": "2"})
        assert [client.object("encoding", key) for key in ("new", "other")] == ["hashtable", "listpack"]
