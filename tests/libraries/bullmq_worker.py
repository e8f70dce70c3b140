"""A worker of BullMQ: its Python client has no command line."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from bullmq import Job, Worker

from tests.libraries.job_log import note
from tests.libraries.worker_process import URL_VARIABLE

QUEUE = "jobs"
LOCK_MS = 2000
"""By default half a minute: a job of a killed worker is handed out again after this."""


async def process(job: Job, _: str) -> Any:
    name = job.data["name"]
    match job.name:
        case "double":
            note("done", name)
            return 2 * name
        case "fail":
            note("tried", name)
            raise ValueError(f"{name} fails")
        case "recover":
            note("tried", name)
            if job.attemptsMade < job.data["failures"]:
                raise ValueError("not yet")
            return "recovered"
        case _:
            note("begun", name)
            await asyncio.sleep(job.data.get("seconds", 0))
            note("done", name)
            return None


async def main() -> None:
    options: Any = {
        "connection": os.environ[URL_VARIABLE],
        "concurrency": 2,
        "lockDuration": LOCK_MS,
        "stalledInterval": LOCK_MS,
        "runRetryDelay": 200,
    }
    worker = Worker(QUEUE, process, {**options, "autorun": False})
    worker.on("error", lambda error: print("error:", repr(error), flush=True))
    await worker.run()


if __name__ == "__main__":
    asyncio.run(main())
