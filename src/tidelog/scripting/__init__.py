"""Lua: scripts (EVAL) run in a sandbox, each as one transaction.

    script          the text of a script: its name (SHA1), and the flags of its first line
    source          what is refused before it is compiled
    cache           the scripts that EVALSHA finds
    interpreter     one Lua state with the sandbox in it, and the scripts compiled for it
    libraries       cjson, cmsgpack, bit, struct and bounded string patterns, written in Lua
    host            what a script may ask of the server: commands above all
    callee          a command as scripts call it
    plain_calls     the plain forms of the commands that scripts run most
    function        a function of a library, and the first line of a library
    functions       the libraries of functions, loaded into the interpreter
    scripts         runs a script as a transaction, and stops it at its limits
The sandbox itself and the library `redis` are written in Lua (`lua/`).

Python hands Lua bytes and numbers, and gets bytes and numbers back; no script ever holds an object of Python. What a
script has changed is journaled as the operations of its commands, as after EXEC. The script itself is not journaled.
"""
