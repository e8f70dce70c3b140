"""Sockets: connections, turns of the loop, and the one place where everything is wired together.

`session` is a connection, `engine` runs its commands, `turn` ends each turn of the loop: one journal write, then the
replies. `listener` opens ports, `runtime` wires.
"""
