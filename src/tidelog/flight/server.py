"""The Flight server: gRPC's threads turn requests into calls on the loop, and record batches into bytes.

    do_get            a range of a stream (`request`) as record batches
    do_put            entries to append (columns `tag` and `entry`); each batch is a transaction, answered by its offset
    get_flight_info   a range divided into parts that can be read side by side
    list_flights      the streams of a database

A thread never touches the store: it waits for a function that runs on the loop.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.flight as flight

from tidelog import limits
from tidelog.engine.dispatch import explain
from tidelog.engine.gate import LOADING
from tidelog.errors import ClientError, CommandError, EnvironmentFault
from tidelog.flight.access import Access, Handshake, is_local
from tidelog.flight.nodes import PACKED, SCHEMA
from tidelog.flight.request import ReadRequest, parse_criteria, parse_key, parse_read
from tidelog.flight.service import Service, StreamFacts
from tidelog.flight.stream_slice import StreamSlice, batches, packed_batches
from tidelog.server.listener import CannotListen, bind_tcp
from tidelog.server.loop_calls import LoopCalls
from tidelog.streams.cold import OPENED, NodesAway
from tidelog.streams.opening import open_nodes, put_opened

_LOG: Final = logging.getLogger("tidelog")
_Result = TypeVar("_Result")


class FlightServer(flight.FlightServerBase):  # type: ignore[misc]
    """One per process."""

    def __init__(
        self,
        calls: LoopCalls,
        access: Access,
        host: str,
        port: int,
        *,
        tls: tuple[bytes, bytes] | None = None,
    ) -> None:
        self._calls = calls
        self._service: Service | None = None
        """None: the data is being loaded."""
        self._access = access
        self._is_stopping = False
        scheme = "grpc+tls" if tls is not None else "grpc"
        place = f"[{host}]" if ":" in host else host
        super().__init__(
            f"{scheme}://{place}:{port}",
            auth_handler=Handshake(),
            middleware={"access": access},
            tls_certificates=[tls] if tls is not None else None,
        )

    def stop(self, seconds: float) -> bool:
        """End, within so many seconds; false: a client does not read what it asked for, and gRPC waits for it."""
        self._is_stopping = True
        ending = Thread(target=self.shutdown, name="flight-stop", daemon=True)
        ending.start()
        ending.join(seconds)
        return not ending.is_alive()

    def serve(self, service: Service | None) -> None:
        """Answer calls that begin from now on with this; those that have begun fail. None: refuse them, as the data is
        being loaded."""
        before, self._service = self._service, service
        if before is not None:
            before.close()

    def _serving(self) -> Service:
        service = self._service
        if service is None:
            raise flight.FlightUnavailableError(LOADING)
        return service

    # --- calls --------------------------------------------------------------------------------------------------

    def list_flights(self, context: Any, criteria: bytes) -> Iterator[flight.FlightInfo]:
        with _Errors(self, context):
            database = parse_criteria(criteria)
            found = self._calls.ask(partial(self._serving().streams, database, limits.FLIGHT_STREAMS_LISTED_MAX))
            return iter([_info(facts) for facts in found])

    def get_flight_info(self, context: Any, descriptor: flight.FlightDescriptor) -> flight.FlightInfo:
        with _Errors(self, context):
            request = _request(descriptor)
            return _info(_ask(self._calls, partial(self._serving().facts, request)))

    def do_get(self, context: Any, ticket: flight.Ticket) -> flight.FlightDataStream:
        with _Errors(self, context):
            request = parse_read(ticket.ticket)
            if request.size_bytes_max is not None:
                raise ClientError("bytes is a question for get_flight_info: read by the ticket that it answers with")
            service = self._serving()
            part = self._read_slice(service, request, None, None)
        schema, made = (PACKED, packed_batches) if request.is_packed else (SCHEMA, batches)

        def generate() -> Iterator[pa.RecordBatch]:
            nonlocal part
            with _Errors(self):
                yield from made(part)
                while part.next_offset is not None:
                    part = self._read_slice(service, request, part.next_offset, part.left)
                    yield from made(part)

        return flight.GeneratorStream(schema, generate())

    def _read_slice(self, service: Service, request: ReadRequest, first: int | None, left: int | None) -> StreamSlice:
        """A piece of a stream, once what is in it is as durable as what Redis clients are told."""
        if self._is_stopping:
            raise flight.FlightUnavailableError("the server stops")
        part = _ask(self._calls, partial(service.read_slice, request, first, left))
        self._calls.wait(service.settle)
        return part

    def do_put(self, context: Any, descriptor: flight.FlightDescriptor, reader: Any, writer: Any) -> None:
        with _Errors(self, context):
            request = _request(descriptor)
            service = self._serving()
            for chunk in reader:
                tags, entries = _columns(chunk.data)
                if not entries:
                    continue
                offset = self._calls.ask(partial(service.append, request.key, request.database, tags, entries))
                self._calls.wait(service.settle)
                writer.write(pa.py_buffer(json.dumps({"offset": offset, "count": len(entries)}).encode()))

    def get_schema(self, context: Any, _descriptor: flight.FlightDescriptor) -> flight.SchemaResult:
        with _Errors(self, context):
            return flight.SchemaResult(SCHEMA)

    def list_actions(self, context: Any) -> list[flight.ActionType]:
        with _Errors(self, context):
            return []

    def do_action(self, context: Any, _action: flight.Action) -> None:
        with _Errors(self, context):
            raise ClientError("this server has no actions")

    def do_exchange(self, context: Any, _descriptor: flight.FlightDescriptor, _reader: Any, _writer: Any) -> None:
        with _Errors(self, context):
            raise ClientError("this server has no DoExchange: read with DoGet, append with DoPut")

    def check(self, context: Any) -> None:
        if not self._access.needs_password and not is_local(context.peer()):
            raise flight.FlightUnauthorizedError(
                "DENIED without a password only this machine is served: set one with --requirepass-file"
            )


def open_flight(
    calls: LoopCalls,
    access: Access,
    host: str,
    port: int,
    tls_cert: str | None,
    tls_key: str | None,
) -> FlightServer:
    """A server that listens, and refuses calls until it is told what to serve."""
    tls = None
    if tls_cert is not None and tls_key is not None:
        tls = Path(tls_cert).read_bytes(), Path(tls_key).read_bytes()
    for probe in bind_tcp(host, port):  # gRPC does not say what is wrong with a port
        probe.close()
    try:
        return FlightServer(calls, access, host, port, tls=tls)
    except (pa.ArrowException, OSError) as error:
        raise CannotListen(f"cannot listen on {host}:{port} for Flight: {str(error).splitlines()[0]}") from error


class _Errors:
    """Turns our errors into Flight's, so that a client is told what is wrong and nothing else.

    Without a context the call was let in already.
    """

    def __init__(self, server: FlightServer, context: Any = None) -> None:
        if context is not None:
            server.check(context)

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _where: object) -> None:
        if isinstance(error, CommandError | ClientError):
            raise flight.FlightServerError(str(error)) from None
        if isinstance(error, pa.ArrowInvalid):
            raise flight.FlightServerError(f"the data is not valid: {error}") from None
        if isinstance(error, TimeoutError | EnvironmentFault):
            raise flight.FlightUnavailableError("the server cannot answer at the moment") from None
        if isinstance(error, Exception) and not isinstance(error, flight.FlightError):
            # gRPC would send the traceback to the client. Which bug it met is for the log.
            _LOG.error("a Flight call failed: %s", explain(error))
            raise flight.FlightInternalError("internal error") from None


def _request(descriptor: flight.FlightDescriptor) -> ReadRequest:
    """A stream's name as a path, or a request as a command."""
    if descriptor.descriptor_type == flight.DescriptorType.PATH:
        if len(descriptor.path) != 1:
            raise ClientError("a path must have one part, the name of a stream")
        return ReadRequest(parse_key({"stream": descriptor.path[0].decode("utf-8", "surrogateescape")}))
    return parse_read(descriptor.command)


def _ask(calls: LoopCalls, work: Callable[[], _Result]) -> _Result:
    """Ask the loop, which never waits for a disk: cold nodes that it needs, to find an id, are read on this thread."""
    for _ in range(limits.FETCHED_TIMES_MAX):
        try:
            return calls.ask(partial(OPENED.run_without_reading, work))
        except NodesAway as away:
            read = open_nodes(away.nodes)
        calls.ask(partial(put_opened, read))
    return calls.ask(work)


def _info(facts: StreamFacts) -> flight.FlightInfo:
    descriptor = flight.FlightDescriptor.for_command(ReadRequest(facts.key, facts.database).ticket())
    endpoints = [flight.FlightEndpoint(part.ticket(), []) for part in facts.parts]
    return flight.FlightInfo(SCHEMA, descriptor, endpoints, facts.length, facts.size_bytes)


def _columns(batch: pa.RecordBatch) -> tuple[list[bytes], list[bytes]]:
    """Tags and entries of a batch that a client sent."""
    batch.validate(full=True)
    if batch.num_rows > limits.FLIGHT_APPENDED_ROWS_MAX or batch.nbytes > limits.FLIGHT_APPENDED_BYTES_MAX:
        raise ClientError(
            f"a batch has at most {limits.FLIGHT_APPENDED_ROWS_MAX} entries and "
            f"{limits.FLIGHT_APPENDED_BYTES_MAX} bytes: it is one transaction"
        )
    if sorted(batch.schema.names) not in (["entry"], ["entry", "tag"]):
        raise ClientError("entries must have a column `entry`, may have a column `tag`, and no others")
    entries = _bytes(batch, "entry")
    return (_bytes(batch, "tag") if "tag" in batch.schema.names else [b""] * len(entries)), entries


def _bytes(batch: pa.RecordBatch, name: str) -> list[bytes]:
    column = batch.column(name)
    kinds = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_string, pa.types.is_large_string)
    if not any(is_kind(column.type) for is_kind in kinds):
        raise ClientError(f"column {name} is {column.type}: it must be binary or string")
    if column.null_count:
        raise ClientError(f"column {name} has nulls")
    found: list[bytes] = column.cast(pa.binary()).to_pylist()
    return found
