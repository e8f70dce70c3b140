"""Planted bugs of scripts: each must be caught by the simulation of the store (`store_world`) or of feeds
(`feed_world`)."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants import Mutant

SCRIPT_MUTANTS: Final = (
    Mutant(
        "script-journaled-command-by-command",
        "scripting/host.py",
        "                reply = run_command(callee.row, transaction, arguments)\n",
        "                reply = run_command(callee.row, transaction, arguments)\n"
        "                self._engine.commit(transaction)\n",
        "a feed tells of half a script as if it were whole",
        "feeds",
    ),
    Mutant(
        "script-not-journaled",
        "scripting/scripts.py",
        "            engine.commit(transaction)\n",
        "            pass\n",
        "what a script did is in memory alone",
        "store",
    ),
    Mutant(
        "failed-script-not-journaled",
        "scripting/scripts.py",
        "        if joined is None:\n            engine.commit(transaction)\n",
        "        if joined is None and not isinstance(_reply(answer), ErrorReply):\n"
        "            engine.commit(transaction)\n",
        "what a script did before it failed is in memory alone",
        "store",
    ),
    Mutant(
        "script-leaves-exec",
        "scripting/scripts.py",
        "        joined = engine.transaction\n",
        "        joined = None\n",
        "a script inside EXEC is journaled before what EXEC did before it",
        "store",
    ),
)
