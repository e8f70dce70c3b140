"""The names of the keys that Tidelog itself writes. Applications may read them, and should not write them.

The keys of day streams and channels are not here: they are built from names, in `days/jobset.py` and
`channels/names.py`.
"""

from __future__ import annotations

from typing import Final

PIPELINE_PREFIX: Final = "tidelog:pipeline:"
"""`tidelog:pipeline:<job>`: the hash in which a pipeline job reports its progress. Jobs write it; `tidelog pipeline
status`, `tidelog view ls` and /metrics read it. The lake and views skip all keys with this prefix."""

JOB_INDEX: Final = f"{PIPELINE_PREFIX}jobs"
"""The set of the jobs, and parts of jobs, that have such a hash. Written and read with the hashes."""

LEASE_PREFIX: Final = f"{PIPELINE_PREFIX}lease:"
"""`tidelog:pipeline:lease:<name>`: the holder of a lease, until it expires. `days/lease.py` writes it. A job that
cannot start reads it, to say for how long the lease is still held."""

LEASE_COUNT_PREFIX: Final = f"{PIPELINE_PREFIX}fence:"
"""`tidelog:pipeline:fence:<name>`: the token of the last holder of the lease. `days/lease.py` writes it;
`days/fence.py` compares the tokens of jobs with it."""

WRITTEN_PREFIX: Final = "tidelog:written:"
"""`tidelog:written:{<tag>}:<stream>`: the hash with the last sequence number of each producer that writes a stream of a
plain Redis. Only Spark's stream writer writes and reads it."""

VIEW_ROW_PREFIX: Final = "view:"
"""`view:<name>:<key>`: the hash of one row of a view. `tidelog pipeline view` writes it; applications, `tidelog view
show` and `tidelog view check` read it."""

VIEW_JOB_PREFIX: Final = "view:"
"""`view:<name>`: the part of the job `view` that keeps one view, in the set of jobs and as the name of its lease.
`tidelog pipeline view` writes it; `tidelog view ls` reads it."""

CHANNEL_HANDLE_KEY: Final = "tidelog:channels:handle-key"
"""The key that proves receipt handles of channels, unless one is configured. The first gateway that needs it makes it;
the others of the same backend read it. Removing it makes all handles invalid, and loses nothing."""

CHANNEL_REVOKED_PREFIX: Final = "tidelog:channels:revoked:"
"""`tidelog:channels:revoked:<SHA-256 of the id of a token>`: the token was revoked; the key lives until it expires.
Gateways write and read it. Removing it makes the token valid again."""
