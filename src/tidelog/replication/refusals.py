"""What clients are told whose command the role of the server, or the state of its links, forbids."""

from __future__ import annotations

from typing import Final

READ_ONLY: Final = "READONLY You can't write against a read only replica."
RETURNING: Final = (
    "READONLY this leader has come back after a crash and waits a few seconds for its followers, which may have more"
)
DEPOSED: Final = "READONLY this server was a leader, and a newer one is known: REPLICAOF says which of them leads"
NO_SPACE: Final = "READONLY this server was made a leader, and waits for space on its disk to write that down"
TOO_FEW: Final = "NOREPLICAS Not enough good replicas to write."
STALE: Final = "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."
