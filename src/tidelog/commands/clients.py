"""CLIENT: list, name, pause, wake and kill connections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tidelog import limits
from tidelog.commands.arguments import I64_MAX, integer, syntax_error
from tidelog.commands.connection import check_name
from tidelog.commands.help import help_reply
from tidelog.engine.session import Replies, Session
from tidelog.engine.table import CONNECTION, Arguments, Command, connection
from tidelog.errors import CommandError
from tidelog.resp.encoder import Reply, SetReply, Verbatim, encode

_USER: Final = b"default"
_TYPES: Final = frozenset([b"normal", b"master", b"slave", b"replica", b"pubsub"])


_CONNECTION_BYTES: Final = 3 * limits.KIB
"""What an idle connection takes, roughly: measured with a thousand of them."""
_NAME_BYTES: Final = 100
"""What a channel, a pattern or a watched key takes beside its name, roughly."""


def describe(session: Session, running: Sequence[bytes] = ()) -> bytes:
    """A client as CLIENT LIST has it: one line. `running`: its command that runs now."""
    flags = (
        ("O" if session.is_monitor else "")
        + ("P" if session.is_listening else "")
        + ("x" if session.queued is not None else "")
    )
    flags += "b" if session.is_blocked else ""
    flags += ("d" if session.is_dirty else "") + ("U" if session.local.startswith("/") else "")
    flags += "e" if session.is_unevictable else ""
    unsent = session.unsent_bytes
    argument_bytes = sum(map(len, running))
    unread = session.backlog_bytes + (len(encode(list(running), 2)) if running else 0)
    names = [*session.channels, *session.patterns, *session.shard_channels, *(key for _, key in session.watched)]
    names_bytes = sum(map(len, names)) + len(names) * _NAME_BYTES
    fields = {
        "id": session.id,
        "addr": session.peer,
        "laddr": session.local,
        "fd": session.descriptor,
        "name": session.name.decode(),
        "age": session.age_s,
        "idle": session.idle_s,
        "flags": flags or "N",
        "db": session.database,
        "sub": len(session.channels),
        "psub": len(session.patterns),
        "ssub": len(session.shard_channels),
        "multi": -1 if session.queued is None else len(session.queued),
        "qbuf": unread,
        "qbuf-free": 0,
        "argv-mem": argument_bytes,
        "multi-mem": session.queued_bytes,
        "rbs": 0,
        "rbp": 0,
        "obl": 0,
        "oll": 1 if unsent else 0,
        "omem": unsent,
        "tot-mem": _CONNECTION_BYTES + unread + argument_bytes + session.queued_bytes + unsent + names_bytes,
        "events": "rw" if unsent else "r",
        "cmd": session.last_command.lower() or "NULL",
        "user": _USER.decode(),
        "redir": -1,
        "resp": session.protocol,
        "lib-name": session.library_name.decode(),
        "lib-ver": session.library_version.decode(),
    }
    return " ".join(f"{name}={value}" for name, value in fields.items()).encode("utf-8", "surrogateescape")


def _type(session: Session) -> bytes:
    return b"pubsub" if session.is_listening else b"normal"


def _read_type(argument: bytes) -> bytes:
    name = argument.lower()
    if name not in _TYPES:
        raise CommandError(f"ERR Unknown client type '{argument.decode('utf-8', 'surrogateescape')}'")
    return b"replica" if name == b"slave" else name


def _wrong_number(container: str, arguments: Arguments) -> CommandError:
    shown = arguments[1].decode("utf-8", "surrogateescape")
    return CommandError(f"ERR unknown subcommand or wrong number of arguments for '{shown}'. Try {container} HELP.")


# --- this connection --------------------------------------------------------------------------------------------


def client_id(session: Session, _arguments: Arguments) -> Reply:
    return session.id


def client_info(session: Session, arguments: Arguments) -> Reply:
    return Verbatim(describe(session, arguments) + b"\n")


def client_getname(session: Session, _arguments: Arguments) -> Reply:
    return session.name or None


def client_setname(session: Session, arguments: Arguments) -> Reply:
    session.name = check_name(arguments[2])
    return "OK"


def client_setinfo(session: Session, arguments: Arguments) -> Reply:
    """Libraries give their name and version, for CLIENT LIST."""
    attribute = arguments[2].lower()
    if attribute not in (b"lib-name", b"lib-ver"):
        raise CommandError(f"ERR Unrecognized option '{arguments[2].decode('utf-8', 'surrogateescape')}'")
    if any(not 33 <= byte <= 126 for byte in arguments[3]):
        raise CommandError(f"ERR {attribute.decode()} cannot contain spaces, newlines or special characters.")
    if attribute == b"lib-name":
        session.library_name = arguments[3]
    else:
        session.library_version = arguments[3]
    return "OK"


def client_reply(session: Session, arguments: Arguments) -> Reply:
    wanted = arguments[2].upper()
    if wanted == b"ON":
        session.set_replies(Replies.ON)
    elif wanted == b"OFF":
        session.set_replies(Replies.OFF)
    elif wanted == b"SKIP":
        if session.replies is not Replies.OFF:
            session.set_replies(Replies.SKIP_NEXT)
    else:
        raise syntax_error()
    return "OK"


def _switch(argument: bytes) -> bool:
    if argument.upper() not in (b"ON", b"OFF"):
        raise syntax_error()
    return argument.upper() == b"ON"


def client_no_evict(session: Session, arguments: Arguments) -> Reply:
    session.is_unevictable = _switch(arguments[2])
    return "OK"


def client_no_touch(session: Session, arguments: Arguments) -> Reply:
    session.leave_no_trace(_switch(arguments[2]))
    return "OK"


def client_tracking(_session: Session, arguments: Arguments) -> Reply:
    if _switch(arguments[2]):
        raise CommandError("ERR client side caching is not supported: a change feed tells of changes")
    return "OK"


def client_caching(_session: Session, _arguments: Arguments) -> Reply:
    raise CommandError(
        "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled"
    )


def client_trackinginfo(_session: Session, _arguments: Arguments) -> Reply:
    return {b"flags": SetReply([b"off"]), b"redirect": -1, b"prefixes": []}


def client_getredir(_session: Session, _arguments: Arguments) -> Reply:
    return -1


# --- all connections --------------------------------------------------------------------------------------------


def client_list(session: Session, arguments: Arguments) -> Reply:
    clients = list(session.engine.sessions.all())
    if len(arguments) > 2:
        option = arguments[2].upper()
        if option == b"TYPE" and len(arguments) == 4:
            wanted = _read_type(arguments[3])
            clients = [each for each in clients if _type(each) == wanted]
        elif option == b"ID" and len(arguments) > 3:
            ids = [integer(argument, "ERR Invalid client ID") for argument in arguments[3:]]
            found = [session.engine.sessions.find(number) for number in ids]
            clients = [each for each in found if each is not None]
        else:
            raise syntax_error()
    lines = [describe(each, arguments if each is session else ()) + b"\n" for each in clients]
    return Verbatim(b"".join(lines))


def client_kill(session: Session, arguments: Arguments) -> Reply:
    if len(arguments) == 3:
        address = arguments[2].decode("utf-8", "surrogateescape")
        found = [each for each in session.engine.sessions.all() if each.peer == address][:1]
        if not found:
            raise CommandError("ERR No such client")
        _kill(session, found[0])
        return "OK"
    if len(arguments) % 2:
        raise syntax_error()
    is_wanted, skips_me = _read_filters(arguments)
    found = [each for each in session.engine.sessions.all() if is_wanted(each) and not (skips_me and each is session)]
    for each in found:
        _kill(session, each)
    return len(found)


def _kill(killer: Session, session: Session) -> None:
    if session is killer:
        session.close_after_reply()
    else:
        session.kill()


def _read_filters(arguments: Arguments) -> tuple[Callable[[Session], bool], bool]:
    tests: list[Callable[[Session], bool]] = []
    skips_me = True
    for option, value in zip(arguments[2::2], arguments[3::2], strict=True):
        name = option.upper()
        if name == b"ID":
            number = integer(value, "ERR client-id should be greater than 0")
            if number < 1:
                raise CommandError("ERR client-id should be greater than 0")
            tests.append(lambda session, number=number: session.id == number)  # type: ignore[misc]
        elif name == b"TYPE":
            kind = _read_type(value)
            tests.append(lambda session, kind=kind: _type(session) == kind)  # type: ignore[misc]
        elif name == b"ADDR":
            text = value.decode("utf-8", "surrogateescape")
            tests.append(lambda session, text=text: session.peer == text)  # type: ignore[misc]
        elif name == b"LADDR":
            text = value.decode("utf-8", "surrogateescape")
            tests.append(lambda session, text=text: session.local == text)  # type: ignore[misc]
        elif name == b"USER":
            if value != _USER:
                raise CommandError(f"ERR No such user '{value.decode('utf-8', 'surrogateescape')}'")
        elif name == b"SKIPME" and value.upper() in (b"YES", b"NO"):
            skips_me = value.upper() == b"YES"
        else:
            raise syntax_error()
    return lambda session: all(test(session) for test in tests), skips_me


def client_pause(session: Session, arguments: Arguments) -> Reply:
    if len(arguments) > 4:
        raise _wrong_number("CLIENT", arguments)
    writes_only = False
    if len(arguments) == 4:
        mode = arguments[3].upper()
        if mode not in (b"WRITE", b"ALL"):
            raise CommandError("ERR CLIENT PAUSE mode must be WRITE or ALL")
        writes_only = mode == b"WRITE"
    ms = integer(arguments[2], "ERR timeout is not an integer or out of range")
    if ms < 0:
        raise CommandError("ERR timeout is negative")
    if ms > I64_MAX - session.engine.clock.wall_us() // 1000:
        raise CommandError("ERR timeout is out of range")
    session.engine.gate.pause(ms, writes_only=writes_only)
    return "OK"


def client_unpause(session: Session, _arguments: Arguments) -> Reply:
    session.engine.gate.resume()
    return "OK"


def client_unblock(session: Session, arguments: Arguments) -> Reply:
    if len(arguments) > 4:
        raise _wrong_number("CLIENT", arguments)
    if len(arguments) == 4 and arguments[3].upper() not in (b"TIMEOUT", b"ERROR"):
        raise CommandError("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")
    found = session.engine.sessions.find(integer(arguments[2]))
    with_error = len(arguments) == 4 and arguments[3].upper() == b"ERROR"
    return int(found is not None and session.engine.blocking.unblock(found, with_error=with_error))


def client_help(_session: Session, _arguments: Arguments) -> Reply:
    return help_reply(
        "CLIENT",
        """
        CACHING (YES|NO)
            Enable/disable tracking of the keys for next command in OPTIN/OPTOUT modes.
        GETREDIR
            Return the client ID we are redirecting to when tracking is enabled.
        GETNAME
            Return the name of the current connection.
        ID
            Return the ID of the current connection.
        INFO
            Return information about the current client connection.
        KILL <ip:port>
            Kill connection made from <ip:port>.
        KILL <option> <value> [<option> <value> [...]]
            Kill connections. Options are:
            * ADDR (<ip:port>|<unixsocket>:0)
              Kill connections made from the specified address
            * LADDR (<ip:port>|<unixsocket>:0)
              Kill connections made to specified local address
            * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)
              Kill connections by type.
            * USER <username>
              Kill connections authenticated by <username>.
            * SKIPME (YES|NO)
              Skip killing current connection (default: yes).
        LIST [options ...]
            Return information about client connections. Options:
            * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)
              Return clients of specified type.
        UNPAUSE
            Stop the current client pause, resuming traffic.
        PAUSE <timeout> [WRITE|ALL]
            Suspend all, or just write, clients for <timeout> milliseconds.
        REPLY (ON|OFF|SKIP)
            Control the replies sent to the current connection.
        SETNAME <name>
            Assign the name <name> to the current connection.
        UNBLOCK <clientid> [TIMEOUT|ERROR]
            Unblock the specified blocked client.
        TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]]
                 [OPTIN] [OPTOUT] [NOLOOP]
            Control server assisted client side caching.
        TRACKINGINFO
            Report tracking status for the current connection.
        NO-EVICT (ON|OFF)
            Protect current client connection from eviction.
        """,
    )


_PLAIN = "noscript loading stale"
_ADMIN = "admin noscript loading stale"

COMMANDS: list[Command] = [
    connection(CONNECTION, "CLIENT|ID", 2, client_id, _PLAIN, summary="return the id of this connection"),
    connection(CONNECTION, "CLIENT|INFO", 2, client_info, _PLAIN, summary="return facts about this connection"),
    connection(CONNECTION, "CLIENT|GETNAME", 2, client_getname, _PLAIN, summary="return the name of this connection"),
    connection(CONNECTION, "CLIENT|SETNAME", 3, client_setname, _PLAIN, summary="name this connection"),
    connection(
        CONNECTION,
        "CLIENT|SETINFO",
        4,
        client_setinfo,
        _PLAIN,
        summary="tell the name and version of a client library",
    ),
    connection(
        CONNECTION, "CLIENT|REPLY", 3, client_reply, _PLAIN, summary="turn replies to this connection on or off"
    ),
    connection(
        CONNECTION, "CLIENT|NO-EVICT", 3, client_no_evict, _ADMIN, summary="accepted; clients are never evicted"
    ),
    connection(
        CONNECTION,
        "CLIENT|NO-TOUCH",
        3,
        client_no_touch,
        _PLAIN,
        summary="have reads of this connection leave idle times alone",
    ),
    connection(
        CONNECTION, "CLIENT|TRACKING", -3, client_tracking, _PLAIN, summary="not supported; only OFF is accepted"
    ),
    connection(CONNECTION, "CLIENT|CACHING", 3, client_caching, _PLAIN, summary="not supported"),
    connection(
        CONNECTION, "CLIENT|TRACKINGINFO", 2, client_trackinginfo, _PLAIN, summary="return that nothing is tracked"
    ),
    connection(CONNECTION, "CLIENT|GETREDIR", 2, client_getredir, _PLAIN, summary="return that nothing is tracked"),
    connection(CONNECTION, "CLIENT|LIST", -2, client_list, _ADMIN, summary="return all connections"),
    connection(CONNECTION, "CLIENT|KILL", -3, client_kill, _ADMIN, summary="close connections"),
    connection(CONNECTION, "CLIENT|PAUSE", -3, client_pause, _ADMIN, summary="hold back commands for a while"),
    connection(CONNECTION, "CLIENT|UNPAUSE", 2, client_unpause, _ADMIN, summary="end a pause"),
    connection(CONNECTION, "CLIENT|UNBLOCK", -3, client_unblock, _ADMIN, summary="end the wait of a blocked client"),
    connection(CONNECTION, "CLIENT|HELP", 2, client_help, "loading stale", summary="list the subcommands of CLIENT"),
]
