"""A server that loads: its ports are open, it says so, and its clients go on with the data once that is there."""

from __future__ import annotations

import http.client
import shutil
import signal
from pathlib import Path
from typing import Any

import pyarrow.flight as flight
import pytest
import redis

from tests.integration.held_server import HeldServer, held
from tests.integration.server_process import ServerProcess

LOADING = "LOADING|Tidelog is loading the dataset in memory"


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with a key in it."""
    with ServerProcess(tmp_path_factory.mktemp("filled") / "data") as server:
        server.client().set("old", "1")
        assert server.terminate() == 0
        return server.data


@pytest.fixture
def data(filled: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(filled, tmp_path / "data"))


def get(server: HeldServer, path: str, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    return response.status, body


def test_what_is_answered_while_it_loads(data: Path) -> None:
    with held(data) as server, server.client(decode_responses=True) as client:
        for words in (["PING"], ["GET", "old"], ["SET", "new", "1"], ["EVAL", "return 1", "0"], ["SAVE"], ["DBSIZE"]):
            with pytest.raises(redis.BusyLoadingError, match=LOADING):
                client.execute_command(*words)
        with pytest.raises(redis.BusyLoadingError):
            client.execute_command("FEED", "ACK", "name", "1")
        facts = client.info()
        assert (facts["loading"], facts["role"], facts["tcp_port"]) == (1, "master", server.port)
        assert facts["loading_start_time"] <= client.time()[0]
        assert client.echo("hi") == "hi"
        assert client.execute_command("SELECT", "3")
        assert client.config_get("port") == {"port": str(server.port)}
        assert client.client_setname("me")
        assert client.execute_command("ROLE")[0] == "master"
        assert client.command_count() > 100
        run_id, number = facts["run_id"], client.client_id()

        line = server.let_go()
        assert line.startswith(f"tidelog: ready on redis://127.0.0.1:{server.port}")
        # The same connection goes on, in the same state.
        assert (client.client_id(), client.client_getname()) == (number, "me")
        assert client.client_info()["db"] == 3
        assert client.execute_command("SELECT", "0")
        assert client.get("old") == "1"
        assert client.set("new", "1")
        facts = client.info()
        assert (facts["loading"], facts["run_id"]) == (0, run_id)
        assert "loading_start_time" not in facts
        assert facts["total_error_replies"] >= 7
    with ServerProcess(data) as again:
        assert again.client().get("new") == b"1"


def test_a_sentinel_sees_a_server_that_is_there(data: Path) -> None:
    """Its two connections, as they are: PING, INFO and PUBLISH on one, SUBSCRIBE on the other."""
    with held(data) as server, server.client() as commands, server.client() as listener:
        pubsub = listener.pubsub()
        pubsub.subscribe("__sentinel__:hello")
        assert pubsub.get_message(timeout=10)["type"] == "subscribe"
        assert commands.publish("__sentinel__:hello", "first") == 1
        assert pubsub.get_message(timeout=10)["data"] == b"first"
        server.let_go()
        assert commands.publish("__sentinel__:hello", "second") == 1
        assert pubsub.get_message(timeout=10)["data"] == b"second"
        assert commands.get("old") == b"1"


def test_a_password_is_asked_for_first(data: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("sesame\n")
    (tmp_path / "secret").chmod(0o600)
    with held(data, "--requirepass-file", str(tmp_path / "secret")) as server:
        with server.client() as stranger, pytest.raises(redis.AuthenticationError):
            stranger.info()
        with server.client(password="sesame") as client:
            assert client.info("persistence")["loading"] == 1
            assert client.config_set("requirepass", "another")
            server.let_go()
            assert client.get("old") == b"1"
        with server.client(password="another") as client:
            assert client.get("old") == b"1"


def test_what_was_begun_while_it_loads_goes_on(data: Path) -> None:
    with (
        held(data) as server,
        server.client(single_connection_client=True) as queueing,
        server.client(single_connection_client=True) as watching,
        server.client(single_connection_client=True) as monitoring,
    ):
        assert queueing.execute_command("MULTI") == b"OK"
        assert queueing.execute_command("ECHO", "queued") == b"QUEUED"
        assert watching.execute_command("WATCH", "old") is True
        assert watching.execute_command("MULTI") == b"OK"
        with monitoring.monitor() as monitor:
            queueing.execute_command("ECHO", "more")
            server.let_go()
            assert queueing.execute_command("GET", "old") == b"QUEUED"
            assert queueing.execute_command("EXEC") == [b"queued", b"more", b"1"]
            # What it watched was not what is there now.
            assert watching.execute_command("GET", "old") == b"QUEUED"
            assert watching.execute_command("EXEC") is None
            while monitor.next_command()["command"] != "GET old":  # the test's time is bounded
                pass


def test_parameters_that_were_set_while_it_loads_stay(data: Path) -> None:
    wanted = {
        "retain-bytes": "12345678",
        "retain-age": "4321",
        "feed-checkpoint": "250",
        "feed-repeats": "7",
        "maxmemory": "4000000000",
        "timeout": "99",
        "slowlog-max-len": "17",
        "script-time-limit": "1234",
    }
    with held(data) as server, server.client(decode_responses=True) as client:
        for name, value in wanted.items():
            assert client.config_set(name, value)
        server.let_go()
        assert {name: client.config_get(name)[name] for name in wanted} == wanted


def test_the_other_ports(data: Path) -> None:
    with held(data, http=True, flight=True) as server:
        client: Any = flight.FlightClient(f"grpc://127.0.0.1:{server.flight_port}")
        assert get(server, "/health") == (503, '{"status":"loading"}')
        assert get(server, "/feed?prefix=") == (
            503,
            '{"error":"LOADING","message":"Tidelog is loading the dataset in memory"}',
        )
        assert get(server, "/feed?prefix=", accept="text/event-stream") == (
            200,
            'retry: 5000\n\nevent: error\ndata: {"error":"LOADING",'
            '"message":"Tidelog is loading the dataset in memory"}\n\n',
        )
        status, samples = get(server, "/metrics")
        assert status == 200
        assert "\ntidelog_loading 1\n" in samples
        assert "tidelog_keys" not in samples
        assert get(server, "/channel/news?subscriber=me")[0] in (404, 503)
        with pytest.raises(flight.FlightUnavailableError, match="LOADING"):
            list(client.list_flights())
        server.let_go()
        assert get(server, "/health") == (200, '{"status":"ok"}')
        status, samples = get(server, "/metrics")
        assert "\ntidelog_loading 0\n" in samples
        assert '\ntidelog_keys{db="0"} 1\n' in samples
        assert list(client.list_flights()) == []
        client.close()


@pytest.mark.parametrize("how", ["signal", "shutdown"])
def test_a_stop_does_not_wait_for_the_data(data: Path, how: str) -> None:
    with held(data, "--unix-socket", str(data.parent / "socket")) as server:
        with server.client() as client:
            if how == "signal":
                server.process.send_signal(signal.SIGTERM)
            else:
                with pytest.raises(redis.ConnectionError):
                    client.execute_command("SHUTDOWN")
        assert server.wait() == (0, "")
        assert not (data.parent / "socket").exists()
    with ServerProcess(data) as again:
        assert again.client().get("old") == b"1"
        assert again.client().info("tidelog")["epochs"] == 1


def test_a_start_that_fails_later_fails_as_ever(data: Path) -> None:
    """Two of them wait for the same directory, and only one gets it."""
    with held(data, http=True, flight=True) as server, ServerProcess(data) as other, server.client() as client:
        assert client.info("persistence")["loading"] == 1
        server.let_go()
        status, errors = server.wait()
        assert status == 2
        assert errors.startswith("tidelog: ")
        assert str(other.pid) in errors
        assert len(errors.splitlines()) == 1
        with pytest.raises(redis.ConnectionError):
            client.info()
        assert other.client().get("old") == b"1"
