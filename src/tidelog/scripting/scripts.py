"""Runs scripts: each is one transaction, or a part of the one that EXEC runs.

    find or compile the script  ->  begin a transaction  ->  Lua, whose commands decide and apply as they go  ->  commit

What a script has changed stays and is journaled, however the script ends: there is no roll-back, as in Redis. A script
that meets a limit is ended, its client is told so, and the interpreter is thrown away. Nobody else can do anything
while a script runs, and the limits bound that time; so there is no state of being busy, and nothing for SCRIPT KILL
to kill.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from tidelog import limits
from tidelog.engine.dispatch import explain
from tidelog.engine.table import REDIS_VERSION
from tidelog.errors import ApplyFailed, CommandError, LimitExceeded
from tidelog.resp.encoder import ErrorReply, Reply, Wire
from tidelog.scripting.cache import ScriptCache
from tidelog.scripting.function import Function
from tidelog.scripting.host import TOO_LARGE, Host
from tidelog.scripting.interpreter import Interpreter, NotCompiled
from tidelog.scripting.script import NO_SCRIPT, Script, sha_of

if TYPE_CHECKING:
    from tidelog.engine.engine import Engine
    from tidelog.engine.session import Session

_LOG: Final = logging.getLogger("tidelog")
_VERSION_NUMBER: Final = 0x00070204
"""`REDIS_VERSION` as a number."""
_ARGUMENT_OVERHEAD_BYTES: Final = 64
"""What an argument takes in Lua beside its bytes, at most."""
_NOT_READ_ONLY: Final = "ERR Can not execute a script with write flag using *_ro command."


class ScriptLimits:
    """What one script may take. CONFIG SET changes it."""

    def __init__(
        self,
        time_ms: int = limits.SCRIPT_TIME_MS_DEFAULT,
        memory_bytes: int = limits.SCRIPT_MEMORY_BYTES_DEFAULT,
    ) -> None:
        self.time_ms = time_ms
        """How long it may run; twice as long once it has written."""
        self.memory_bytes = memory_bytes
        """For the next interpreter."""


class Scripts:
    """All scripts, and the interpreter that runs them. One thread."""

    def __init__(self, engine: Engine, bounds: ScriptLimits) -> None:
        self._engine = engine
        self.limits = bounds
        self.cache = ScriptCache()
        self._host = Host(engine, engine.stopwatch_s)
        self._interpreter: Interpreter | None = None
        """Made when it is needed."""
        self._memory_bytes = 0
        """The limit that it was made with."""
        self.functions: object = None
        """The libraries of functions (`functions`), made when they are first asked for."""
        self.stopped_count = 0
        """Scripts that met a limit."""

    # --- the scripts --------------------------------------------------------------------------------------------

    def of_text(self, text: bytes) -> Script:
        """The script of a text, which EVALSHA finds from now on; `CommandError`: it is none."""
        sha = sha_of(text)
        script = self.cache.find(sha)
        if script is None:
            script = self._new(text, sha)
            for gone in self.cache.add(script):
                self.interpreter().forget(gone)
        return script

    def of_sha(self, sha: bytes) -> Script:
        script = self.cache.find(sha) or self.cache.find(sha.lower())
        if script is None:
            raise CommandError(NO_SCRIPT)
        return script

    def load(self, text: bytes) -> bytes:
        """SCRIPT LOAD: its name."""
        sha = sha_of(text)
        script = self.cache.find(sha) or self._new(text, sha)
        try:
            self.cache.keep(script)
        except LimitExceeded as error:
            raise CommandError(f"ERR {error}") from None
        return sha

    def _new(self, text: bytes, sha: bytes) -> Script:
        script = Script(text, sha)
        try:
            self.interpreter().compiled(script)
        except NotCompiled as problem:
            raise CommandError(f"ERR Error compiling script (new function): {problem}") from None
        except self.interpreter().errors:
            self._interpreter = None
            raise CommandError("ERR Error compiling script (new function): not enough memory") from None
        return script

    def flush(self) -> None:
        """Forget all scripts."""
        self.cache.clear()
        self._interpreter = None

    def interpreter(self) -> Interpreter:
        """The one that runs scripts at the moment."""
        made = self._interpreter
        if made is None or self._memory_bytes != self.limits.memory_bytes or made.is_full:
            self._memory_bytes = self.limits.memory_bytes
            made = self._interpreter = Interpreter(
                self._host,
                self._memory_bytes,
                REDIS_VERSION,
                _VERSION_NUMBER,
                self._engine.store.random.randrange(2**32),
            )
        return made

    @property
    def used_bytes(self) -> int:
        """What the interpreter takes."""
        return 0 if self._interpreter is None else self._interpreter.used_bytes

    # --- running ------------------------------------------------------------------------------------------------

    def run(
        self,
        session: Session,
        script: Script | Function,
        keys_count: int,
        words: Sequence[bytes],
        *,
        is_read_only: bool,
    ) -> Reply:
        """Run a script or a function with its keys and values; its reply."""
        self._check_may_run(script, is_read_only)
        interpreter = self.interpreter()
        size = 0
        for word in words:
            size += len(word) + _ARGUMENT_OVERHEAD_BYTES
        if size > interpreter.reserve_bytes:
            raise CommandError("ERR the arguments are larger than the memory of a script takes (script-memory-limit)")
        engine, host = self._engine, self._host
        joined = engine.transaction
        transaction = engine.store.begin(session.database) if joined is None else joined
        selected = transaction.database
        host.begin(
            session,
            transaction,
            is_read_only=is_read_only or script.is_read_only,
            allows_oom=script.allows_oom,
            limit_s=self.limits.time_ms / 1000,
            reply_bytes_max=interpreter.reserve_bytes,
            exec_number=0 if joined is None else engine.exec_count,
        )
        answer: Any = None
        engine.is_in_script = True
        try:
            if isinstance(script, Function):
                answer = interpreter.run_function(script, session.protocol, keys_count, words)
            else:
                answer = interpreter.run_script(script, session.protocol, keys_count, words)
        except interpreter.errors as error:
            answer = self._end(session, script, interpreter, error)
        except Exception as error:
            host.failure = host.failure or error
        finally:
            engine.is_in_script = False
            host.end()
            transaction.database = selected
        if host.failure is not None:
            answer = self._fail(host.failure)
        if joined is None:
            engine.commit(transaction)
            engine.publishing.committed()
        return _reply(answer)

    def _fail(self, failure: Exception) -> Any:
        """A script met a bug: it ends, and what it had changed is journaled like that of any other."""
        self._interpreter = None
        if isinstance(failure, ApplyFailed):
            raise failure
        _LOG.error("a script met a bug and was ended: %s", explain(failure))
        return False, b"ERR internal error"

    def load_library(self, session: Session, code: bytes) -> list[tuple[bytes, bytes, bytes | None]]:
        """Run the code of a library; its functions. `CommandError`: it is none, or it takes too long."""
        interpreter, host = self.interpreter(), self._host
        host.begin(
            session,
            self._engine.store.begin(),
            is_read_only=True,
            allows_oom=True,
            limit_s=limits.LIBRARY_LOAD_MS_MAX / 1000,
            reply_bytes_max=interpreter.reserve_bytes,
        )
        try:
            return interpreter.load_library(code)
        except NotCompiled as problem:
            raise CommandError(f"ERR {problem}") from None
        except interpreter.errors as error:
            self._interpreter = None
            if host.stop_reason == TOO_LARGE or interpreter.is_of_memory(error):
                raise CommandError("ERR Error registering functions: not enough memory") from None
            raise CommandError("ERR Error registering functions: FUNCTION LOAD timeout") from None
        finally:
            host.end()

    def _check_may_run(self, script: Script | Function, is_read_only: bool) -> None:
        """What the gate could not tell: it knows the flags of a script (`as_called`), and nothing of one without."""
        if script.has_flags:
            if is_read_only and not script.is_read_only:
                raise CommandError(_NOT_READ_ONLY)
        elif self._engine.gate.read_refusal is not None:
            raise CommandError(self._engine.gate.read_refusal)

    def _end(self, session: Session, script: Script | Function, interpreter: Interpreter, error: BaseException) -> Any:
        """A script was stopped: what its client is told."""
        host = self._host
        self._interpreter = None
        if host.failure is not None:
            return None
        self.stopped_count += 1
        stays = "What it has written stays." if host.has_written else "It had written nothing."
        if host.stop_reason == TOO_LARGE or interpreter.is_of_memory(error):
            why = f"The script needs more than {self._memory_bytes} bytes of memory (script-memory-limit)"
        elif host.stop_reason:
            ms = self.limits.time_ms * (2 if host.has_written else 1)
            why = f"The script ran for more than {ms} ms (script-time-limit)"
        else:
            why = f"The script failed: {str(error)[:200]!a}"
        sha = script.sha.decode()
        _LOG.warning("stopped script %s of %s. %s. %s", sha, session.peer, why, stays)
        line = f", on @user_script:{host.stop_line}" if host.stop_line else ""
        return False, f"ERR {why} and was stopped. {stays} script: {sha}{line}.".encode()


def flags_as_called(flags: frozenset[str], script: Script | Function) -> frozenset[str]:
    """The flags of a command that runs a script: what the script says that it needs, if it does."""
    if not script.has_flags:
        return flags
    found = flags - {"stale", "denyoom", "write"}
    found |= {"stale"} if script.allows_stale else set()
    found |= set() if script.is_read_only else {"write"}
    return found if script.allows_oom else found | {"denyoom"}


def scripts_of(engine: Engine) -> Scripts:
    """The scripts of a server, made when they are first asked for."""
    found = engine.scripting
    if not isinstance(found, Scripts):
        found = Scripts(engine, ScriptLimits())
        engine.scripting = found
    return found


def _reply(answer: Any) -> Reply:
    """What `lua/redis.lua` answers, as a reply."""
    if isinstance(answer, tuple):
        data = answer[1]
        if answer[0] is None:
            return Wire(data)
        return ErrorReply(data.decode("utf-8", "surrogateescape"), is_counted=len(answer) == 3 and bool(answer[2]))
    return answer
