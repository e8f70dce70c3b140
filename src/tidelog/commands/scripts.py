"""EVAL, EVALSHA and SCRIPT: Lua on the server. How scripts run is in `scripting/`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tidelog.commands.arguments import integer
from tidelog.commands.help import help_reply
from tidelog.engine.session import Session
from tidelog.engine.table import SCRIPTING, Arguments, Command, Keys, connection
from tidelog.errors import CommandError
from tidelog.resp.encoder import Reply
from tidelog.scripting.function import Function
from tidelog.scripting.script import NO_SCRIPT, SHA_BYTES, Script
from tidelog.scripting.scripts import Scripts, flags_as_called, scripts_of


def keys_count(arguments: Arguments) -> int:
    """How many of the arguments from the fourth word on are keys."""
    count = integer(arguments[2])
    if count > len(arguments) - 3:
        raise CommandError("ERR Number of keys can't be greater than number of args")
    if count < 0:
        raise CommandError("ERR Number of keys can't be negative")
    return count


def eval_(session: Session, arguments: Arguments) -> Reply:
    return _run(session, Scripts.of_text, arguments, is_read_only=False)


def eval_ro(session: Session, arguments: Arguments) -> Reply:
    return _run(session, Scripts.of_text, arguments, is_read_only=True)


def evalsha(session: Session, arguments: Arguments) -> Reply:
    _check_sha(arguments[1])
    return _run(session, Scripts.of_sha, arguments, is_read_only=False)


def evalsha_ro(session: Session, arguments: Arguments) -> Reply:
    _check_sha(arguments[1])
    return _run(session, Scripts.of_sha, arguments, is_read_only=True)


def _check_sha(sha: bytes) -> None:
    """What cannot be the name of a script is told before anything else, as in Redis."""
    if len(sha) != SHA_BYTES:
        raise CommandError(NO_SCRIPT)


def _run(
    session: Session, find: Callable[[Scripts, bytes], Script], arguments: Arguments, *, is_read_only: bool
) -> Reply:
    count, scripts = keys_count(arguments), scripts_of(session.engine)
    script = find(scripts, arguments[1])
    return scripts.run(session, script, count, arguments[3:], is_read_only=is_read_only)


# --- the cache --------------------------------------------------------------------------------------------------


def script_load(session: Session, arguments: Arguments) -> Reply:
    return scripts_of(session.engine).load(arguments[2])


def script_exists(session: Session, arguments: Arguments) -> Reply:
    cache = scripts_of(session.engine).cache
    return [int(cache.find(sha.lower()) is not None) for sha in arguments[2:]]


def script_flush(session: Session, arguments: Arguments) -> Reply:
    if len(arguments) > 3 or (len(arguments) == 3 and arguments[2].upper() not in (b"ASYNC", b"SYNC")):
        raise CommandError("ERR SCRIPT FLUSH only support SYNC|ASYNC option")
    scripts_of(session.engine).flush()
    return "OK"


def script_kill(_session: Session, _arguments: Arguments) -> Reply:
    """Commands run after each other, so none arrives while a script runs: the time limit ends it."""
    raise CommandError("NOTBUSY No scripts in execution right now.")


def script_debug(_session: Session, arguments: Arguments) -> Reply:
    mode = arguments[2].upper()
    if mode == b"NO":
        return "OK"
    if mode in (b"YES", b"SYNC"):
        raise CommandError("ERR there is no debugger for scripts")
    raise CommandError("ERR Use SCRIPT DEBUG YES/SYNC/NO")


def script_help(_session: Session, _arguments: Arguments) -> Reply:
    return help_reply(
        "SCRIPT",
        """
        DEBUG (YES|SYNC|NO)
            Set the debug mode for subsequent scripts executed.
        EXISTS <sha1> [<sha1> ...]
            Return information about the existence of the scripts in the script cache.
        FLUSH [ASYNC|SYNC]
            Flush the Lua scripts cache. Very dangerous on replicas.
            When called without the optional mode argument, the behavior is determined by the
            lazyfree-lazy-user-flush configuration directive. Valid modes are:
            * ASYNC: Asynchronously flush the scripts cache.
            * SYNC: Synchronously flush the scripts cache.
        KILL
            Kill the currently executing Lua script.
        LOAD <script>
            Load a script into the scripts cache without executing it.
        """,
    )


def runs(row: Command, find: Callable[[Session, bytes], Script | Function]) -> Command:
    """The row of a command that runs a script; `find`: the one that it names. One that is not found has no say."""

    def as_called(session: Session, arguments: Arguments) -> Command:
        try:
            return replace(row, flags=flags_as_called(row.flags, find(session, arguments[1])))
        except CommandError:
            return row

    return replace(row, as_called=as_called)


def _of_text(_session: Session, text: bytes) -> Script:
    return Script(text, b"")


def _of_sha(session: Session, sha: bytes) -> Script:
    return scripts_of(session.engine).of_sha(sha)


_FLAGS = "noscript stale skip_monitor no_mandatory_keys movablekeys"
_KEYS = Keys(count_at=2, may_be_none=True)

COMMANDS: list[Command] = [
    runs(connection(SCRIPTING, "EVAL", -3, eval_, _FLAGS, summary="run a script", keys=_KEYS), _of_text),
    runs(
        connection(SCRIPTING, "EVALSHA", -3, evalsha, _FLAGS, summary="run a script that the server knows", keys=_KEYS),
        _of_sha,
    ),
    runs(
        connection(
            SCRIPTING, "EVAL_RO", -3, eval_ro, f"readonly {_FLAGS}", summary="run a script that only reads", keys=_KEYS
        ),
        _of_text,
    ),
    runs(
        connection(
            SCRIPTING,
            "EVALSHA_RO",
            -3,
            evalsha_ro,
            f"readonly {_FLAGS}",
            summary="run a script that the server knows and that only reads",
            keys=_KEYS,
        ),
        _of_sha,
    ),
    connection(
        SCRIPTING, "SCRIPT|LOAD", 3, script_load, "noscript stale", summary="make a script known and return its name"
    ),
    connection(SCRIPTING, "SCRIPT|EXISTS", -3, script_exists, "noscript", summary="tell which scripts are known"),
    connection(SCRIPTING, "SCRIPT|FLUSH", -2, script_flush, "noscript", summary="forget all scripts"),
    connection(
        SCRIPTING,
        "SCRIPT|KILL",
        2,
        script_kill,
        "noscript allow_busy",
        summary="end a script that runs: none ever does when this command is read",
    ),
    connection(
        SCRIPTING, "SCRIPT|DEBUG", 3, script_debug, "noscript", summary="accepted with NO: there is no debugger"
    ),
    connection(SCRIPTING, "SCRIPT|HELP", 2, script_help, "loading stale", summary="list the subcommands of SCRIPT"),
]
