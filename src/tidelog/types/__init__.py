"""The values of the keyspace: what they are, and the operations that change them.

A value is the plainest Python object that does the work: `bytes` for a string, `Hash` (a dict), `Set` (a dict without
values), `ZSet` (packed in order while it is small, a dict and a sorted list beyond). Streams are a package of their
own; lists will stand beside these.

Each module has its operations: a deterministic effect with results and no conditions, how it is encoded, which keys it
names, and how it is applied to a `Keyspace`. The live path, recovery and a follower apply the same ones.
"""
