"""Parameters of a running server: what libraries and tools ask for is there, and says what is so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.server_process import ServerProcess


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("parameters") / "data") as made:
        yield made


ASKED_FOR = {
    "maxmemory-policy": "noeviction",
    "notify-keyspace-events": "",
    "timeout": "0",
    "save": "",
    "appendonly": "yes",
    "databases": "16",
    "maxmemory": "0",
    "proto-max-bulk-len": str(512 * 1024**2),
    "list-max-listpack-size": "-2",
    "list-max-ziplist-size": "-2",
    "hash-max-ziplist-entries": "512",
    "zset-max-ziplist-value": "64",
    "stream-node-max-entries": "100",
    "stream-node-max-bytes": "0",
    "auto-aof-rewrite-percentage": "0",
    "latency-monitor-threshold": "0",
    "requirepass": "",
    "protected-mode": "yes",
    "cluster-enabled": "no",
    "tls-cert-file": "",
    "replicaof": "",
}


def test_libraries_find_what_they_ask_for(server: ServerProcess) -> None:
    with server.client(decode_responses=True) as client:
        assert {name: client.config_get(name).get(name) for name in ASKED_FOR} == ASKED_FOR
        assert ASKED_FOR.items() <= client.config_get("*").items()


@pytest.mark.parametrize(("name", "value"), [("notify-keyspace-events", "KEA"), ("save", "60 1"), ("appendonly", "no")])
def test_what_cannot_be_is_refused_and_what_is_can_be_set(server: ServerProcess, name: str, value: str) -> None:
    with server.client(decode_responses=True) as client:
        before = client.config_get(name)[name]
        with pytest.raises(Exception, match="CONFIG SET failed"):
            client.config_set(name, value)
        assert client.config_set(name, before)
        assert client.config_get(name)[name] == before


def test_a_password_is_never_told(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server, server.client() as client:
        client.config_set("slowlog-log-slower-than", 0)
        client.config_set("requirepass", "s3same")
        shown = [client.config_get("*"), client.slowlog_get(100), client.info("everything"), client.client_list()]
        assert "s3same" not in repr(shown)
        assert client.config_get("requirepass") == {"requirepass": "(redacted)"}
        assert client.config_get("protected-mode") == {"protected-mode": "no"}
        for wrong in ("(redacted)", "x" * 513):
            with pytest.raises(Exception, match="possibly related to argument 'requirepass'"):
                client.config_set("requirepass", wrong)
        with server.client(password="s3same") as other:
            assert other.ping()
        server.terminate()
        assert "the password was changed with CONFIG SET" in server.stderr
        assert "s3same" not in server.stderr


def test_a_server_that_others_can_reach_keeps_its_password(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", "--host", "0.0.0.0") as server, server.client() as client:
        assert client.config_set("requirepass", "")  # there is none: only this machine is served
        client.config_set("requirepass", "s3same")
        with pytest.raises(Exception, match="where others can reach it: it needs a password"):
            client.config_set("requirepass", "")
        client.config_set("requirepass", "another")
        with server.client(password="another") as other:
            assert other.ping()
