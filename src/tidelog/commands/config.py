"""CONFIG: parameters of the running server, under the names that Redis gives them."""

from __future__ import annotations

from tidelog.commands.arguments import syntax_error
from tidelog.commands.help import help_reply
from tidelog.engine.parameters import IMMUTABLE, BadValue
from tidelog.engine.session import Session
from tidelog.engine.table import SERVER, Arguments, Command, connection
from tidelog.errors import CommandError, TidelogError
from tidelog.resp.encoder import Reply
from tidelog.store.glob import matcher

_GLOB_SIGNS = frozenset(b"*?[")


def config_get(session: Session, arguments: Arguments) -> Reply:
    parameters = session.engine.parameters
    found: dict[bytes, bytes] = {}
    for pattern in arguments[2:]:
        if _GLOB_SIGNS.isdisjoint(pattern):
            parameter = parameters.find(_text(pattern))
            if parameter is not None and parameter.name.encode() not in found:
                found[pattern] = parameter.get().encode()
        else:
            is_match = matcher(pattern.lower())
            for parameter in parameters:
                name = parameter.name.encode()
                if is_match(name):
                    found[name] = parameter.get().encode()
    return found


def config_set(session: Session, arguments: Arguments) -> Reply:
    if len(arguments) % 2:
        raise syntax_error()
    seen = set()
    work = []
    for name, value in zip(arguments[2::2], arguments[3::2], strict=True):
        parameter = session.engine.parameters.find(_text(name))
        if parameter is None:
            raise CommandError(f"ERR Unknown option or number of arguments for CONFIG SET - '{_text(name)}'")
        if parameter.read is None:
            raise _failed(name, IMMUTABLE)
        if (parameter.alias_of or parameter.name) in seen:
            raise _failed(name, "duplicate parameter")
        seen.add(parameter.alias_of or parameter.name)
        try:
            work.append(parameter.read(_text(value)))
        except BadValue as problem:
            raise _failed(name, str(problem)) from None
    for put_to_work in work:
        put_to_work()
    file = session.engine.parameters.file
    if file is not None:
        for changed in seen:
            file.changed(changed)
    return "OK"


def _failed(name: bytes, why: str) -> CommandError:
    return CommandError(f"ERR CONFIG SET failed (possibly related to argument '{_text(name)}') - {why}")


def _text(argument: bytes) -> str:
    return argument.decode("utf-8", "surrogateescape")


def config_resetstat(session: Session, _arguments: Arguments) -> Reply:
    session.engine.reset_statistics()
    return "OK"


def config_rewrite(session: Session, _arguments: Arguments) -> Reply:
    if session.engine.parameters.file is None:
        raise CommandError("ERR The server is running without a config file")
    try:
        session.engine.parameters.rewrite()
    except (OSError, TidelogError) as error:
        raise CommandError(f"ERR Rewriting config file: {error}") from error
    return "OK"


def config_help(_session: Session, _arguments: Arguments) -> Reply:
    return help_reply(
        "CONFIG",
        """
        GET <pattern>
            Return parameters matching the glob-like <pattern> and their values.
        SET <directive> <value>
            Set the configuration <directive> to <value>.
        RESETSTAT
            Reset statistics reported by the INFO command.
        REWRITE
            Rewrite the configuration file.
        """,
    )


_FLAGS = "admin noscript loading stale"

COMMANDS: list[Command] = [
    connection(SERVER, "CONFIG|GET", -3, config_get, _FLAGS, summary="return parameters that match a pattern"),
    connection(SERVER, "CONFIG|SET", -4, config_set, _FLAGS, summary="change parameters", secret_from=2),
    connection(SERVER, "CONFIG|RESETSTAT", 2, config_resetstat, _FLAGS, summary="reset the counters of INFO"),
    connection(
        SERVER,
        "CONFIG|REWRITE",
        2,
        config_rewrite,
        _FLAGS,
        summary="write changed parameters into the configuration file",
    ),
    connection(SERVER, "CONFIG|HELP", 2, config_help, "loading stale", summary="list the subcommands of CONFIG"),
]
