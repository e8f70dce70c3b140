"""What can go wrong with a table: the user's fault, another job's, or the storage's.

delta-rs raises its own errors and `OSError`. `faults_at` turns them into ours, with the table's URI in the message.
"""

from __future__ import annotations

from deltalake.exceptions import CommitFailedError, DeltaError

from tidelog.errors import ClientError, EnvironmentFault


class TableUnusable(ClientError):
    """The folder holds something else: other files, a table that Tidelog did not make, or one with other settings."""


class TableTaken(EnvironmentFault):
    """Another job wrote to the same table."""


class TableFault(EnvironmentFault):
    """The folder or the object store failed."""


class faults_at:
    """Within this block, an error of the storage names the table at `uri`."""

    def __init__(self, uri: str) -> None:
        self._uri = uri

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, CommitFailedError):
            raise TableTaken(
                f"{self._uri}: another job wrote to this table at the same time ({first_line(error)}). The commit was "
                "not made. Let only one job write to a lake, and run this one again"
            ) from None
        if isinstance(error, DeltaError | OSError):
            raise TableFault(f"{self._uri}: {first_line(error)}") from None


def first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
