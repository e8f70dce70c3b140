"""REPLICAOF, ROLE, WAIT, FAILOVER and their like: the server as a leader or a follower.

What they do is in `replication/`. A role that is changed inside MULTI changes at the end of the turn: the commands of
the transaction have run, and no reply has left.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from tidelog.commands.arguments import NOT_AN_INTEGER, NOT_POSITIVE, integer, quoted, syntax_error
from tidelog.commands.timeouts import ms_to_wait
from tidelog.engine.follower_waits import WantedConfirmation
from tidelog.engine.session import Session
from tidelog.engine.surroundings import ServerReplication
from tidelog.engine.table import SERVER, Arguments, Command, CommandGroup, connection
from tidelog.errors import ClientError, CommandError, TidelogError
from tidelog.ports import NetworkAddress
from tidelog.replication.facts import ReplicationFacts
from tidelog.replication.message import LinkRole
from tidelog.resp.encoder import Reply, Wire

_LOG: Final = logging.getLogger("tidelog")
_PORT_MAX: Final = 65535
_HOST_BYTES_MAX: Final = 255
_NO_STREAM: Final = (
    "ERR the history of a Tidelog server is no stream of Redis commands, so a Redis cannot follow it: start another "
    "Tidelog server with --replicaof"
)


def _replication(session: Session) -> ServerReplication:
    found = session.engine.replication
    if found is None:
        raise CommandError("ERR this server has no replication")
    return found


def _is_follower(session: Session) -> bool:
    replication = session.engine.replication
    return replication is not None and replication.role is LinkRole.FOLLOWER


def tsync(session: Session, _arguments: Arguments) -> Reply:
    """From the reply on, the connection is a link of replication (docs/internals/replication.md)."""
    _replication(session)
    if not session.engine.may_wait or session.is_listening:
        raise CommandError("ERR a connection that listens, or is inside of MULTI, cannot become a link")
    session.become_link()
    return "OK"


# --- the role ---------------------------------------------------------------------------------------------------


def replicaof(session: Session, arguments: Arguments) -> Reply:
    replication = _replication(session)
    if replication.facts().failover_state != "no-failover":
        raise CommandError("ERR REPLICAOF not allowed while failing over.")
    if (arguments[1].lower(), arguments[2].lower()) == (b"no", b"one"):
        _change_role(session, replication.lead)
        return "OK"
    port = integer(arguments[2], "ERR Invalid master port")
    if not 0 <= port <= _PORT_MAX:
        raise CommandError("ERR Invalid master port")
    address = _host(arguments[1]), port
    leader = replication.leader
    if leader is not None and (leader[0].lower(), leader[1]) == (address[0].lower(), port):
        return "OK Already connected to specified master"
    _change_role(session, partial(replication.follow, address))
    return "OK"


def _host(word: bytes) -> str:
    """The name or number of a host, as it is given: whether there is one shows when it is connected to."""
    if not word or len(word) > _HOST_BYTES_MAX or not word.isascii() or any(byte <= ord(" ") for byte in word):
        raise CommandError(f"ERR {quoted(word)} cannot be the name of a host")
    return word.decode()


def _change_role(session: Session, change: Callable[[], None]) -> None:
    """Inside MULTI when all of it is done: what it writes belongs to the role before."""
    if not session.engine.may_wait:
        session.engine.at_end_of_turn(partial(_change_late, change))
        return
    try:
        change()
    except (TidelogError, OSError) as error:
        raise CommandError(f"ERR the role stays as it is: {error}") from error


def _change_late(change: Callable[[], None]) -> None:
    """Nobody can be told any more that it did not work."""
    try:
        change()
    except (TidelogError, OSError) as error:
        _LOG.error("the role stays as it is: %s", error)


def role(session: Session, _arguments: Arguments) -> Reply:
    replication = session.engine.replication
    facts = ReplicationFacts() if replication is None else replication.facts()
    if facts.leader is None:
        followers = [
            [each.host.encode(), b"%d" % each.port, b"%d" % each.written_ts]
            for each in facts.followers
            if each.state == "online"
        ]
        return [b"master", session.engine.store.journal.writer.last_ts, followers]
    host, port = facts.leader
    state = facts.link_state.replace("catch_up", "sync")  # Redis has no word for it
    return [b"slave", host.encode(), max(port, 0), state.encode(), -1 if facts.is_empty else facts.applied_ts]


# --- waiting for followers --------------------------------------------------------------------------------------


def wait(session: Session, arguments: Arguments) -> Reply:
    if _is_follower(session):
        raise CommandError(
            "ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a replica is "
            "configured to be writable (which is not the default) writes to replicas are just local and are not "
            "propagated."
        )
    count = integer(arguments[1])
    timeout_ms = ms_to_wait(arguments[2], session.engine.clock.wall_us() // 1000)
    return _wait(session, b"WAIT", WantedConfirmation(session, count, is_durable=False), timeout_ms)


def waitaof(session: Session, arguments: Arguments) -> Reply:
    here = integer(arguments[1])
    if not 0 <= here <= 1:
        raise CommandError("ERR value is out of range, value must between 0 and 1")
    count = integer(arguments[2], NOT_AN_INTEGER)
    if count < 0:
        raise CommandError(NOT_POSITIVE)
    timeout_ms = ms_to_wait(arguments[3], session.engine.clock.wall_us() // 1000)
    if _is_follower(session):
        raise CommandError(
            "ERR WAITAOF cannot be used with replica instances. Please also note that writes to replicas are just "
            "local and are not propagated."
        )
    wanted = WantedConfirmation(session, count, is_durable=True, needs_disk=here == 1)
    return _wait(session, b"WAITAOF", wanted, timeout_ms)


def _wait(session: Session, command: bytes, wanted: WantedConfirmation, timeout_ms: int) -> Reply:
    if wanted.is_whole or not session.engine.may_wait:
        return wanted.reply()
    session.engine.follower_waits.add(session, command, wanted, timeout_ms)
    return None


# --- handing over -----------------------------------------------------------------------------------------------


def failover(session: Session, arguments: Arguments) -> Reply:
    target, timeout_ms, options = _failover_options(arguments[1:])
    replication = _replication(session)
    facts = replication.facts()
    if facts.failover_state != "no-failover":
        if b"ABORT" not in options:
            raise CommandError("ERR FAILOVER already in progress.")
        replication.abort_fail_over()
        return "OK"
    if b"ABORT" in options:
        raise CommandError("ERR No failover in progress.")
    if facts.role is LinkRole.FOLLOWER:
        raise CommandError("ERR FAILOVER is not valid when server is a replica.")
    if not facts.followers:
        raise CommandError("ERR FAILOVER requires connected replicas.")
    is_forced = b"FORCE" in options
    if is_forced and (not timeout_ms or target is None):
        raise CommandError("ERR FAILOVER with force option requires both a timeout and target HOST and IP.")
    if target is not None:
        found = [each for each in facts.followers if (each.host.lower(), each.port) == (target[0].lower(), target[1])]
        if not found:
            raise CommandError("ERR FAILOVER target HOST and PORT is not a replica.")
        if found[0].state != "online":
            raise CommandError("ERR FAILOVER target replica is not online.")
        target = found[0].host, found[0].port
    try:
        replication.fail_over(target, timeout_ms, is_forced=is_forced)
    except CommandError:
        raise
    except ClientError as error:
        raise CommandError(f"ERR {error}") from error
    return "OK"


def _failover_options(words: Arguments) -> tuple[NetworkAddress | None, int, set[bytes]]:
    """TO, TIMEOUT (0: none), and which of ABORT and FORCE there are."""
    target: NetworkAddress | None = None
    timeout_ms = 0
    options: set[bytes] = set()
    at = 0
    while at < len(words):
        word, left = words[at].upper(), len(words) - at - 1
        if word == b"TIMEOUT" and left >= 1 and not timeout_ms:
            timeout_ms = integer(words[at + 1])
            if timeout_ms <= 0:
                raise CommandError("ERR FAILOVER timeout must be greater than 0")
            at += 1
        elif word == b"TO" and left >= 2 and target is None:
            port = integer(words[at + 2])
            target = _host(words[at + 1]), port
            at += 2
        elif word in (b"ABORT", b"FORCE"):
            options.add(word)
        else:
            raise syntax_error()
        at += 1
    return target, timeout_ms, options


# --- what replicas of Redis say ---------------------------------------------------------------------------------


def replconf(_session: Session, arguments: Arguments) -> Reply:
    """Clients that pretend to be replicas send it. Followers of a Tidelog server do not."""
    if len(arguments) % 2 == 0:
        raise syntax_error()
    for option, value in zip(arguments[1::2], arguments[2::2], strict=True):
        name = option.lower()
        if name in (b"ack", b"getack"):
            return Wire()  # it is said by replicas, and to them: nobody waits for an answer
        if name == b"listening-port":
            integer(value)
        elif name == b"ip-address":
            if len(value) > _HOST_BYTES_MAX:
                raise CommandError(
                    f"ERR REPLCONF ip-address provided by replica instance is too long: {len(value)} bytes"
                )
        elif name != b"capa":
            shown = option.decode("utf-8", "surrogateescape")
            raise CommandError(f"ERR Unrecognized REPLCONF option: {shown}")
    return "OK"


def no_stream(_session: Session, _arguments: Arguments) -> Reply:
    raise CommandError(_NO_STREAM)


_WAITING = CommandGroup("generic")
"""Of Redis's group of commands about keys, with which these have nothing to do."""
_ROLE_FLAGS = "admin noscript stale no_async_loading"
_STREAM_FLAGS = "admin noscript no_async_loading no_multi"

COMMANDS: list[Command] = [
    connection(SERVER, "REPLICAOF", 3, replicaof, _ROLE_FLAGS, summary="follow a leader, or with NO ONE nobody"),
    connection(SERVER, "SLAVEOF", 3, replicaof, _ROLE_FLAGS, summary="the same as REPLICAOF"),
    connection(
        SERVER,
        "ROLE",
        1,
        role,
        "noscript loading stale fast @admin @dangerous",
        summary="return the role of the server, and who follows it or whom it follows",
    ),
    connection(_WAITING, "WAIT", 3, wait, "blocking @connection", summary="wait until followers have what was written"),
    connection(
        _WAITING,
        "WAITAOF",
        4,
        waitaof,
        "blocking @connection",
        summary="wait until what was written is durable here and on followers",
    ),
    connection(SERVER, "FAILOVER", -1, failover, "admin noscript stale", summary="hand over to a follower"),
    connection(
        SERVER,
        "REPLCONF",
        -1,
        replconf,
        "admin noscript loading stale allow_busy",
        summary="accepted from clients that pretend to be a replica of Redis",
    ),
    connection(SERVER, "PSYNC", -3, no_stream, _STREAM_FLAGS, summary="refused: Redis cannot follow a Tidelog server"),
    connection(SERVER, "TSYNC", 1, tsync, "admin noscript no_multi", summary="become a link to a server that follows"),
    connection(SERVER, "SYNC", 1, no_stream, _STREAM_FLAGS, summary="refused: Redis cannot follow a Tidelog server"),
]
