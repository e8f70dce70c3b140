"""A process that asks a rate limiter of `limits` again and again, and notes each hit that it allows.

python -m tests.libraries.limit_hits STRATEGY LIMIT HITS
"""

from __future__ import annotations

import os
import sys
from typing import Any

from limits import parse
from limits.storage import storage_from_string
from limits.strategies import STRATEGIES
from redis.exceptions import ConnectionError as LostConnection

from tests.libraries.job_log import note
from tests.libraries.lock_rounds import insist
from tests.libraries.worker_process import URL_VARIABLE


def main(strategy: str, limit: str, hits: int) -> None:
    storage: Any = storage_from_string(os.environ[URL_VARIABLE])
    limiter, item = STRATEGIES[strategy](storage), parse(limit)
    for number in range(hits):
        try:
            note("allowed" if limiter.hit(item, "everybody") else "refused", number)
        except LostConnection:
            note("unknown", number)
            insist(storage.storage.ping)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
