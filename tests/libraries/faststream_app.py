"""A worker of FastStream: `python -m tests.libraries.faststream_app`.

It takes numbers from a list, a channel and a stream, and notes when it starts and finishes one. A number below zero
fails at the first attempt; one above `SLOW` takes until the process is killed, unless another worker had it before.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, Final

from faststream import AckPolicy, FastStream
from faststream.redis import ListSub, PubSub, RedisBroker, StreamSub

from tests.libraries.job_log import LOG_VARIABLE, JobLog, note
from tests.libraries.worker_process import URL_VARIABLE

LIST: Final = "list-jobs"
BATCHES: Final = "batch-jobs"
CHANNEL: Final = "channel-jobs"
ECHO: Final = "echo"
STREAM: Final = "stream-jobs"
GROUP: Final = "workers"
SLOW: Final = 1_000_000
IDLE_MS: Final = 1_500
"""After so long a message of the stream that nobody has acknowledged goes to another worker."""

broker = RedisBroker(os.environ.get(URL_VARIABLE, "redis://127.0.0.1:6399"))
app = FastStream(broker)


class FailedOnce(Exception):
    """A job that fails at the first attempt."""


async def work(source: str, number: int) -> None:
    job = f"{source}:{number}"
    before = JobLog(Path(os.environ[LOG_VARIABLE])).counts("started")[job]
    note("started", job)
    if number < 0 and before == 0:
        raise FailedOnce(job)
    if number >= SLOW and before == 0:
        await asyncio.sleep(600)
    note("done", job)


@broker.subscriber(list=LIST)
async def take_from_list(number: int) -> None:
    await work("list", number)


@broker.subscriber(list=ListSub(BATCHES, batch=True, max_records=10, polling_interval=0.05))
async def take_batch(numbers: list[int]) -> None:
    for number in numbers:
        await work("batch", number)


@broker.subscriber(PubSub(f"{CHANNEL}.*", pattern=True))
async def take_from_channel(number: int) -> None:
    await work("channel", number)


@broker.subscriber(ECHO)
async def echo(message: dict[str, Any]) -> dict[str, Any]:
    return {**message, "seen": True}


@broker.subscriber(
    # One at a time: whatever a worker has read goes to another one if the server is away for longer than `IDLE_MS`.
    stream=StreamSub(STREAM, group=GROUP, consumer=f"worker-{os.getpid()}", max_records=1),
    ack_policy=AckPolicy.NACK_ON_ERROR,
)
async def take_from_stream(number: int) -> None:
    await work("stream", number)


@broker.subscriber(
    stream=StreamSub(STREAM, group=GROUP, consumer=f"claimer-{os.getpid()}", min_idle_time=IDLE_MS),
    ack_policy=AckPolicy.NACK_ON_ERROR,
)
async def take_over(number: int) -> None:
    await work("stream", number)


@app.after_startup
async def tell() -> None:
    note("ready", "worker")


if __name__ == "__main__":
    asyncio.run(app.run())
