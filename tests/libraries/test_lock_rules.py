"""The rules of locks notice a lock that does not lock."""

from __future__ import annotations

import pytest

from tests.libraries.backing_server import BackingServer
from tests.libraries.job_log import JobLog
from tests.libraries.lock_rules import check_exclusion
from tests.libraries.worker_process import Workers


def test_without_a_lock(server: BackingServer, workers: Workers, jobs: JobLog) -> None:
    with pytest.raises(AssertionError, match="additions are lost"):
        check_exclusion(server, workers, jobs, "none", processes=3, rounds=30)
