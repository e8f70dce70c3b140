"""Commands about the connection itself: HELLO, AUTH, SELECT, PING, ECHO, QUIT, RESET."""

from __future__ import annotations

from tidelog import __version__, limits
from tidelog.commands.arguments import integer, syntax_error
from tidelog.engine.session import Session
from tidelog.engine.table import CONNECTION, REDIS_VERSION, Arguments, Command, connection
from tidelog.errors import CommandError, WrongPassword
from tidelog.resp.encoder import Reply

_WRONG_PASSWORD = "WRONGPASS invalid username-password pair or user is disabled."


def ping(session: Session, arguments: Arguments) -> Reply:
    if len(arguments) > 2:
        raise CommandError("ERR wrong number of arguments for 'ping' command")
    if session.protocol == 2 and session.is_listening:
        return [b"pong", arguments[1] if len(arguments) == 2 else b""]
    return "PONG" if len(arguments) == 1 else arguments[1]


def echo(_session: Session, arguments: Arguments) -> Reply:
    return arguments[1]


def quit_(session: Session, _arguments: Arguments) -> Reply:
    session.close_after_reply()
    return "OK"


def select(session: Session, arguments: Arguments) -> Reply:
    number = integer(arguments[1])
    if not 0 <= number < limits.DATABASES:
        raise CommandError("ERR DB index is out of range")
    session.select(number)
    return "OK"


def auth(session: Session, arguments: Arguments) -> Reply:
    if len(arguments) > 3:
        raise syntax_error()
    if len(arguments) == 2 and not session.engine.password.is_needed:
        raise CommandError(
            "ERR AUTH <password> called without any password configured for the default user. Are you sure your "
            "configuration is correct?"
        )
    _authenticate(session, arguments[1] if len(arguments) == 3 else b"default", arguments[-1])
    return "OK"


def _authenticate(session: Session, user: bytes, password: bytes) -> None:
    """There is one user, `default`; without a password it takes any."""
    if session.engine.password.is_needed:
        given = password if user == b"default" else b""  # which is never right: names are not to be found out sooner
        verdict = session.engine.password.check(given, session.host)
        if verdict.retry_after_s:
            raise WrongPassword(
                f"ERR too many wrong passwords from your address: try again in {verdict.retry_after_s} s", delay_s=0
            )
        if not verdict.is_right:
            raise WrongPassword(_WRONG_PASSWORD, delay_s=verdict.delay_s)
    elif user != b"default":
        raise CommandError(_WRONG_PASSWORD)
    session.authenticate()


def hello(session: Session, arguments: Arguments) -> Reply:
    protocol, credentials, name = session.protocol, None, None
    at = 2
    if len(arguments) > 1:
        try:
            protocol = integer(arguments[1])
        except CommandError:
            raise CommandError("ERR Protocol version is not an integer or out of range") from None
        if protocol not in (2, 3):
            raise CommandError("NOPROTO unsupported protocol version")
    while at < len(arguments):
        option, left = arguments[at].upper(), len(arguments) - at - 1
        if option == b"AUTH" and left >= 2:
            credentials = arguments[at + 1], arguments[at + 2]
            at += 3
        elif option == b"SETNAME" and left >= 1:
            name = check_name(arguments[at + 1])
            at += 2
        else:
            raise CommandError(f"ERR Syntax error in HELLO option '{arguments[at].decode('utf-8', 'replace')}'")
    if credentials is not None:
        _authenticate(session, *credentials)
    if not session.is_authenticated:
        raise CommandError(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH "
            "<user> <pass> option can be used to authenticate the client and select the RESP protocol version at "
            "the same time"
        )
    if name is not None:
        session.name = name
    session.speak(protocol)
    return {
        b"server": b"redis",
        b"version": REDIS_VERSION,
        b"tidelog_version": __version__.encode(),
        b"proto": protocol,
        b"id": session.id,
        b"mode": b"standalone",
        b"role": b"master",
        b"modules": [],
    }


def check_name(name: bytes) -> bytes:
    """A connection's name, which must be printable and have no spaces."""
    if any(not 33 <= byte <= 126 for byte in name):
        raise CommandError("ERR Client names cannot contain spaces, newlines or special characters.")
    return name


def reset(session: Session, _arguments: Arguments) -> Reply:
    session.reset()
    return "RESET"


_OPEN = "noscript loading stale fast no_auth allow_busy"

COMMANDS: list[Command] = [
    connection(CONNECTION, "PING", -1, ping, "fast", summary="test the connection"),
    connection(CONNECTION, "ECHO", 2, echo, "loading stale fast", summary="return the argument"),
    connection(CONNECTION, "QUIT", -1, quit_, _OPEN, summary="close the connection"),
    connection(CONNECTION, "SELECT", 2, select, "loading stale fast", summary="select a database"),
    connection(CONNECTION, "AUTH", -2, auth, _OPEN, summary="authenticate with the password", secret_from=1),
    connection(
        CONNECTION, "HELLO", -1, hello, _OPEN, summary="choose the protocol version, and authenticate", secret_from=2
    ),
    connection(CONNECTION, "RESET", 1, reset, _OPEN, summary="put the connection into the state of a new one"),
]
