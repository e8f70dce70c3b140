"""FUNCTION, FCALL and FCALL_RO: libraries of functions. How they are loaded and run is in `scripting/`."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.commands.help import help_reply
from tidelog.commands.scripts import runs
from tidelog.engine.session import Session
from tidelog.engine.table import SCRIPTING, Arguments, Command, Keys, connection
from tidelog.errors import CommandError, LimitExceeded
from tidelog.resp.encoder import Reply, SetReply
from tidelog.scripting.function import Function, library_name
from tidelog.scripting.functions import dump, functions_of, undump
from tidelog.scripting.scripts import scripts_of
from tidelog.store.glob import matcher
from tidelog.store.transaction import InDatabase
from tidelog.types.library import LibDel, LibLoad


def fcall(session: Session, arguments: Arguments) -> Reply:
    return _call(session, arguments, is_read_only=False)


def fcall_ro(session: Session, arguments: Arguments) -> Reply:
    return _call(session, arguments, is_read_only=True)


def _call(session: Session, arguments: Arguments, *, is_read_only: bool) -> Reply:
    function = functions_of(session.engine).find(session, arguments[1])
    try:
        count = int(arguments[2])
    except ValueError:
        raise CommandError("ERR Bad number of keys provided") from None
    if count > len(arguments) - 3:
        raise CommandError("ERR Number of keys can't be greater than number of args")
    if count < 0:
        raise CommandError("ERR Number of keys can't be negative")
    return scripts_of(session.engine).run(session, function, count, arguments[3:], is_read_only=is_read_only)


# --- libraries --------------------------------------------------------------------------------------------------


def _change(session: Session, operations: Sequence[LibLoad | LibDel], *, takes_memory: bool = False) -> None:
    """Journal a change of the libraries, as a transaction or as a part of the one that EXEC runs."""
    engine = session.engine
    if takes_memory and engine.gate.is_out_of_memory:
        raise CommandError("OOM command not allowed when used memory > 'maxmemory'.")
    if engine.store.refusal is not None:
        raise CommandError(f"MISCONF {engine.store.refusal}")
    joined = engine.transaction
    transaction = engine.store.begin(session.database) if joined is None else joined
    try:
        transaction.run([InDatabase(0, operation) for operation in operations])
    except LimitExceeded as error:
        raise CommandError(f"ERR {error}") from None
    if joined is None:
        engine.commit(transaction)


def function_load(session: Session, arguments: Arguments) -> Reply:
    may_replace = False
    for word in arguments[2:-1]:
        if word.upper() != b"REPLACE":
            raise CommandError(f"ERR Unknown option given: {word.decode('utf-8', 'surrogateescape')}")
        may_replace = True
    code = arguments[-1]
    name = library_name(code)
    functions = functions_of(session.engine)
    functions.check_room(session.engine.store.libraries.codes | {name: code})
    functions.begin_change()
    new = functions.check_new(session, code, may_replace=may_replace)
    _change(session, [LibLoad(name, code)], takes_memory=True)
    functions.take_new(new)
    return name


def function_delete(session: Session, arguments: Arguments) -> Reply:
    if arguments[2] not in session.engine.store.libraries.codes:
        raise CommandError("ERR Library not found")
    _delete(session, [arguments[2]])
    return "OK"


def _delete(session: Session, names: list[bytes]) -> None:
    _change(session, [LibDel(names)])
    functions_of(session.engine).remove(names)


def _wrong_count(arguments: Arguments) -> CommandError:
    name = arguments[1].decode("utf-8", "surrogateescape")
    return CommandError(f"ERR unknown subcommand or wrong number of arguments for '{name}'. Try FUNCTION HELP.")


def function_flush(session: Session, arguments: Arguments) -> Reply:
    if len(arguments) > 3:
        raise _wrong_count(arguments)
    if len(arguments) == 3 and arguments[2].upper() not in (b"ASYNC", b"SYNC"):
        raise CommandError("ERR FUNCTION FLUSH only supports SYNC|ASYNC option")
    names = list(session.engine.store.libraries.codes)
    if names:
        _delete(session, names)
    return "OK"


def function_list(session: Session, arguments: Arguments) -> Reply:
    pattern: bytes | None = None
    with_code = False
    at = 2
    while at < len(arguments):
        word = arguments[at].upper()
        if word == b"WITHCODE" and not with_code:
            with_code = True
        elif word == b"LIBRARYNAME" and pattern is None:
            at += 1
            if at == len(arguments):
                raise CommandError("ERR library name argument was not given")
            pattern = arguments[at]
        else:
            raise CommandError(f"ERR Unknown argument {arguments[at].decode('utf-8', 'surrogateescape')}")
        at += 1
    matches = None if pattern is None else matcher(pattern, ignores_case=True)
    codes = session.engine.store.libraries.codes
    found: list[Reply] = []
    for name, functions in functions_of(session.engine).all(session).items():
        if matches is not None and not matches(name):
            continue
        shown = [
            {
                b"name": each.name,
                b"description": each.description,
                b"flags": SetReply([flag.decode() for flag in each.flags]),
            }
            for each in functions
        ]
        entry = {b"library_name": name, b"engine": b"LUA", b"functions": shown}
        if with_code:
            entry[b"library_code"] = codes[name]
        found.append(entry)
    return found


def function_dump(session: Session, _arguments: Arguments) -> Reply:
    return dump([*session.engine.store.libraries.codes.values()])


def function_restore(session: Session, arguments: Arguments) -> Reply:
    if len(arguments) > 4:
        raise _wrong_count(arguments)
    policy = arguments[3].upper() if len(arguments) == 4 else b"APPEND"
    if policy not in (b"FLUSH", b"APPEND", b"REPLACE"):
        raise CommandError("ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.")
    libraries = {library_name(code): code for code in undump(arguments[2])}
    functions, known = functions_of(session.engine), session.engine.store.libraries.codes
    is_alone = policy == b"FLUSH"
    functions.check_room(libraries if is_alone else known | libraries)
    functions.begin_change(is_alone=is_alone)
    operations: list[LibLoad | LibDel] = []
    if is_alone:
        operations.append(LibDel(list(known)))
    library_of: dict[bytes, bytes] = {}
    for name, code in libraries.items():
        if policy == b"APPEND" and name in known:
            raise CommandError(f"ERR Library {name.decode()} already exists")
        for each in functions.check_new(session, code, may_replace=True, is_alone=is_alone):
            if library_of.setdefault(each.name.lower(), name) != name:
                raise CommandError(f"ERR Function {each.name.decode()} already exists")
        operations.append(LibLoad(name, code))
    _change(session, operations, takes_memory=True)
    return "OK"


def function_stats(session: Session, _arguments: Arguments) -> Reply:
    libraries = functions_of(session.engine).all(session)
    counts = {b"libraries_count": len(libraries), b"functions_count": sum(map(len, libraries.values()))}
    return {b"running_script": None, b"engines": {b"LUA": counts}}


def function_kill(_session: Session, _arguments: Arguments) -> Reply:
    """Commands run after each other, so none arrives while a function runs: the time limit ends it."""
    raise CommandError("NOTBUSY No scripts in execution right now.")


def function_help(_session: Session, _arguments: Arguments) -> Reply:
    return help_reply(
        "FUNCTION",
        """
        LOAD [REPLACE] <FUNCTION CODE>
            Create a new library with the given library name and code.
        DELETE <LIBRARY NAME>
            Delete the given library.
        LIST [LIBRARYNAME PATTERN] [WITHCODE]
            Return general information on all the libraries:
            * Library name
            * The engine used to run the Library
            * Library description
            * Functions list
            * Library code (if WITHCODE is given)
            It also possible to get only function that matches a pattern using LIBRARYNAME argument.
        STATS
            Return information about the current function running:
            * Function name
            * Command used to run the function
            * Duration in MS that the function is running
            If no function is running, return nil
            In addition, returns a list of available engines.
        KILL
            Kill the current running function.
        FLUSH [ASYNC|SYNC]
            Delete all the libraries.
            When called without the optional mode argument, the behavior is determined by the
            lazyfree-lazy-user-flush configuration directive. Valid modes are:
            * ASYNC: Asynchronously flush the libraries.
            * SYNC: Synchronously flush the libraries.
        DUMP
            Return a serialized payload representing the current libraries, can be restored using FUNCTION RESTORE \
command
        RESTORE <PAYLOAD> [FLUSH|APPEND|REPLACE]
            Restore the libraries represented by the given payload, it is possible to give a restore policy to
            control how to handle existing libraries (default APPEND):
            * FLUSH: delete all existing libraries.
            * APPEND: appends the restored libraries to the existing libraries. On collision, abort.
            * REPLACE: appends the restored libraries to the existing libraries, On collision, replace the old
              libraries with the new libraries (notice that even on this option there is a chance of failure
              in case of functions name collision with another library).
        """,
    )


def _named(session: Session, name: bytes) -> Function:
    return functions_of(session.engine).find(session, name)


_CALL = "noscript stale skip_monitor no_mandatory_keys movablekeys"
_KEYS = Keys(count_at=2, may_be_none=True)

COMMANDS: list[Command] = [
    runs(connection(SCRIPTING, "FCALL", -3, fcall, _CALL, summary="call a function", keys=_KEYS), _named),
    runs(
        connection(
            SCRIPTING,
            "FCALL_RO",
            -3,
            fcall_ro,
            f"readonly {_CALL}",
            summary="call a function that only reads",
            keys=_KEYS,
        ),
        _named,
    ),
    connection(
        SCRIPTING, "FUNCTION|LOAD", -3, function_load, "write denyoom noscript", summary="make a library of functions"
    ),
    connection(
        SCRIPTING, "FUNCTION|DELETE", 3, function_delete, "write noscript", summary="delete a library of functions"
    ),
    connection(
        SCRIPTING, "FUNCTION|FLUSH", -2, function_flush, "write noscript", summary="delete all libraries of functions"
    ),
    connection(SCRIPTING, "FUNCTION|LIST", -2, function_list, "noscript", summary="list libraries and their functions"),
    connection(SCRIPTING, "FUNCTION|DUMP", 2, function_dump, "noscript", summary="return all libraries as one value"),
    connection(
        SCRIPTING,
        "FUNCTION|RESTORE",
        -3,
        function_restore,
        "write denyoom noscript",
        summary="make the libraries that FUNCTION DUMP returned",
    ),
    connection(
        SCRIPTING, "FUNCTION|STATS", 2, function_stats, "noscript allow_busy", summary="count libraries and functions"
    ),
    connection(
        SCRIPTING,
        "FUNCTION|KILL",
        2,
        function_kill,
        "noscript allow_busy",
        summary="end a function that runs: none ever does when this command is read",
    ),
    connection(
        SCRIPTING, "FUNCTION|HELP", 2, function_help, "loading stale", summary="list the subcommands of FUNCTION"
    ),
]
