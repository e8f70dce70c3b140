"""Flight with a real client and a real server: ranges out, entries in, the same password as for Redis clients."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from tests.integration.server_process import COMMAND, ServerProcess, environment


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("flight") / "data", has_flight=True) as running:
        yield running


@pytest.fixture
def client(server: ServerProcess) -> Iterator[flight.FlightClient]:
    server.client().flushall()
    with flight.FlightClient(f"grpc://127.0.0.1:{server.flight_port}") as made:
        yield made


def ticket(stream: str, **fields: Any) -> flight.Ticket:
    return flight.Ticket(json.dumps({"stream": stream, **fields}).encode())


def command(server: ServerProcess, *words: Any) -> Any:
    link: Any = server.client()
    return link.execute_command(*words)


def fill(server: ServerProcess, count: int) -> None:
    words = [word for number in range(count) for word in (b"t%d" % number, b"entry %d" % number)]
    for at in range(0, len(words), 2000):
        command(server, "TWRITE", "s", "ENTRIES", *words[at : at + 2000])


def test_read_all_and_a_range(server: ServerProcess, client: flight.FlightClient) -> None:
    fill(server, 5500)
    table = client.do_get(ticket("s")).read_all()
    assert table.column("offset").to_pylist() == list(range(1, 5501))
    assert table.column("entry").to_pylist() == [b"entry %d" % number for number in range(5500)]
    some = client.do_get(ticket("s", **{"from": {"offset": 999}, "to": {"offset": 1002}})).read_all()
    assert some.column("tag").to_pylist() == [b"t998", b"t999", b"t1000", b"t1001"]
    ms = some.column("ms")[0].as_py()
    since = client.do_get(ticket("s", **{"from": {"time": ms}}, count=3)).read_all()
    assert since.num_rows == 3
    assert client.do_get(ticket("missing")).read_all().num_rows == 0


def test_parts_cover_the_stream(server: ServerProcess, client: flight.FlightClient) -> None:
    fill(server, 3000)
    info = client.get_flight_info(flight.FlightDescriptor.for_path("s"))
    assert info.total_records == 3000
    offsets = [
        offset
        for endpoint in info.endpoints
        for offset in client.do_get(endpoint.ticket).read_all().column("offset").to_pylist()
    ]
    assert offsets == list(range(1, 3001))
    assert len(list(client.list_flights())) == 1


@pytest.mark.parametrize(
    ("first", "size_bytes", "expected"),
    [(1, 1, 1), (1, 100_000, 98), (2500, 300_000, 300), (3950, 10**9, 50), (1, 10**9, 3998), (4000, 10**9, 0)],
)
def test_how_far_so_many_bytes_reach(
    server: ServerProcess, client: flight.FlightClient, first: int, size_bytes: int, expected: int
) -> None:
    """Entries of 1000 bytes, in nodes that are sealed and one that is not; some are gone."""
    for start in range(0, 4000, 500):
        pairs = ((b"t", b"x" * 1000) for _ in range(start, start + 500))
        command(server, "TWRITE", "s", "ENTRIES", *(word for pair in pairs for word in pair))
    ids = [entry[0] for entry in command(server, "XRANGE", "s", "-", "+")]
    command(server, "XDEL", "s", ids[1499], ids[3999])
    request = {"stream": "s", "from": {"offset": first}, "bytes": size_bytes}
    info = client.get_flight_info(flight.FlightDescriptor.for_command(json.dumps(request).encode()))
    (endpoint,) = info.endpoints
    found = client.do_get(endpoint.ticket).read_all() if expected else []
    assert len(found) == pytest.approx(expected, rel=0.05)
    assert info.total_bytes == pytest.approx(1000 * expected, rel=0.1)
    with pytest.raises(flight.FlightServerError, match="bytes is a question for get_flight_info"):
        client.do_get(flight.Ticket(json.dumps(request).encode())).read_all()


def test_append(server: ServerProcess, client: flight.FlightClient) -> None:
    schema = pa.schema([("tag", pa.binary()), ("entry", pa.string())])
    writer, answers = client.do_put(flight.FlightDescriptor.for_path("s"), schema)
    for number in range(3):
        writer.write_batch(pa.record_batch([pa.array([b"t"] * 4, pa.binary()), pa.array([f"e{number}"] * 4)], schema))
        assert json.loads(answers.read().to_pybytes()) == {"offset": 1 + 4 * number, "count": 4}
    writer.close()
    found = command(server, "TREAD", "s", 4, 2)
    assert found == [[4, b"t", b"e0"], [5, b"t", b"e1"]]


def test_append_wakes_a_blocked_reader(server: ServerProcess, client: flight.FlightClient) -> None:
    with server.connect() as reader:
        reader.sendall(b"TREAD s 1 10 BLOCK 20000\r\n")
        while not server.client().info("clients")["blocked_clients"]:
            pass
        schema = pa.schema([("entry", pa.binary())])
        writer, _ = client.do_put(flight.FlightDescriptor.for_path("s"), schema)
        writer.write_batch(pa.record_batch([pa.array([b"e"], pa.binary())], schema))
        assert reader.recv(100) == b"*1\r\n*3\r\n:1\r\n$0\r\n\r\n$1\r\ne\r\n"
        writer.close()


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"tag": pa.array([b"t"], pa.binary())}, "a column `entry`"),
        ({"entry": pa.array([1])}, "column entry is int64"),
        ({"entry": pa.array([b"e", None], pa.binary())}, "has nulls"),
        ({"entry": pa.array([b"e"], pa.binary()), "more": pa.array([1])}, "a column `entry`"),
        ([("entry", pa.array([b"e"], pa.binary()))] * 2, "a column `entry`"),
    ],
)
def test_entries_that_are_none(server: ServerProcess, client: flight.FlightClient, columns: Any, says: str) -> None:
    pairs = list(columns.items() if isinstance(columns, dict) else columns)
    batch = pa.RecordBatch.from_arrays([column for _, column in pairs], names=[name for name, _ in pairs])
    writer, answers = client.do_put(flight.FlightDescriptor.for_path("s"), batch.schema)
    with pytest.raises(flight.FlightServerError, match=says):  # noqa: PT012
        writer.write_batch(batch)
        answers.read()
        writer.close()
    assert server.client().exists("s") == 0


def test_what_is_no_stream(server: ServerProcess, client: flight.FlightClient) -> None:
    server.client().set("string", "v")
    with pytest.raises(flight.FlightServerError, match="WRONGTYPE"):
        client.do_get(ticket("string")).read_all()
    with pytest.raises(flight.FlightServerError, match="JSON object"):
        client.do_get(flight.Ticket(b"nonsense")).read_all()
    with pytest.raises(flight.FlightServerError, match="no such stream"):
        client.get_flight_info(flight.FlightDescriptor.for_path("missing"))


def test_a_port_that_is_taken(server: ServerProcess, tmp_path: Path) -> None:
    words = ["--data", str(tmp_path / "data"), "--port", "auto", "--http-port", "0"]
    done = subprocess.run(
        [*COMMAND, *words, "--flight-port", str(server.flight_port)],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=30,
        check=False,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.endswith(f"cannot listen on 127.0.0.1:{server.flight_port}: Address already in use")


def test_a_password(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret\n")
    secret = str(tmp_path / "secret")
    with ServerProcess(tmp_path / "data", "--requirepass-file", secret, has_flight=True) as server:
        link: Any = server.client(password="s3cret")
        link.execute_command("TWRITE", "s", "t", "e")
        with flight.FlightClient(f"grpc://127.0.0.1:{server.flight_port}") as client:
            with pytest.raises(flight.FlightUnauthenticatedError, match="NOAUTH"):
                client.do_get(ticket("s")).read_all()
            with pytest.raises(flight.FlightUnauthenticatedError):
                client.authenticate_basic_token("default", "wrong")
            header = client.authenticate_basic_token("default", "s3cret")
            options = flight.FlightCallOptions(headers=[header])
            assert client.do_get(ticket("s"), options).read_all().num_rows == 1
            link.config_set("requirepass", "another")  # a token is for the password that it was given for
            with pytest.raises(flight.FlightUnauthenticatedError, match="NOAUTH"):
                client.do_get(ticket("s"), options).read_all()
            with pytest.raises(flight.FlightUnauthenticatedError):
                client.authenticate_basic_token("default", "s3cret")
            options = flight.FlightCallOptions(headers=[client.authenticate_basic_token("default", "another")])
            assert client.do_get(ticket("s"), options).read_all().num_rows == 1
            link.config_set("requirepass", "")
            assert client.do_get(ticket("s")).read_all().num_rows == 1
        assert server.terminate() == 0


def test_no_call_tells_a_traceback(client: flight.FlightClient) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: list(client.list_flights(b"{")),
        lambda: list(client.list_flights(b"[]")),
        lambda: client.do_get(flight.Ticket(b'{"stream": "\\ud800"}')).read_all(),
        lambda: list(client.do_action(flight.Action("any", b""))),
        lambda: client.do_exchange(flight.FlightDescriptor.for_path("s"))[1].read_all(),
    ]
    for call in calls:
        with pytest.raises(flight.FlightServerError) as caught:
            call()
        assert "Traceback" not in str(caught.value)
    assert client.list_actions() == []
    assert client.get_schema(flight.FlightDescriptor.for_path("s")).schema.names[0] == "offset"


def test_a_stream_that_becomes_something_else_meanwhile(server: ServerProcess, client: flight.FlightClient) -> None:
    for number in range(10):
        # What lies on disk is held as it lies there: only what cannot be compressed takes several slices.
        command(server, "TWRITE", "s", "ENTRIES", *(b"t", Random(number).randbytes(1_000_000)) * 10)
    reader = client.do_get(ticket("s"))
    reader.read_chunk()
    command(server, "SET", "s", "v")
    with pytest.raises(flight.FlightServerError, match="WRONGTYPE") as caught:
        reader.read_all()
    assert "Traceback" not in str(caught.value)


def test_a_pause_holds_appends(server: ServerProcess, client: flight.FlightClient) -> None:
    command(server, "CLIENT", "PAUSE", "60000", "WRITE")
    batch = pa.record_batch({"entry": pa.array([b"e"], pa.binary())})
    writer, answers = client.do_put(flight.FlightDescriptor.for_path("s"), batch.schema)
    with pytest.raises(flight.FlightServerError, match="CLIENT PAUSE"):  # noqa: PT012
        writer.write_batch(batch)
        answers.read()
        writer.close()
    command(server, "CLIENT", "UNPAUSE")
    assert server.client().exists("s") == 0


def test_a_client_that_stopped_reading_does_not_hold_up_a_stop(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", has_flight=True) as server:
        for number in range(20):
            command(server, "TWRITE", "s", "ENTRIES", *(b"t", bytes([number]) * 1_000_000) * 10)
        with flight.FlightClient(f"grpc://127.0.0.1:{server.flight_port}") as client:
            reader = client.do_get(ticket("s"))
            reader.read_chunk()
            assert server.terminate() == 0
