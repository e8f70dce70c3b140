"""A process that receives from a layer of channels_redis and notes each message.

python -m tests.libraries.channels_consumer core|pubsub group    a channel of its own, in the group `room`
python -m tests.libraries.channels_consumer core work            the channel `work`
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any, Final

from channels_redis.core import RedisChannelLayer
from channels_redis.pubsub import RedisPubSubChannelLayer
from redis.exceptions import ConnectionError as LostConnection

from tests.libraries.job_log import note
from tests.libraries.worker_process import URL_VARIABLE

GROUP: Final = "room"
WORK: Final = "work"
CAPACITY: Final = 10_000


def make_layer(kind: str, url: str) -> Any:
    if kind == "pubsub":
        return RedisPubSubChannelLayer(hosts=[url])
    return RedisChannelLayer(hosts=[url], capacity=CAPACITY)


async def main(kind: str, mode: str) -> None:
    layer = make_layer(kind, os.environ[URL_VARIABLE])
    channel = WORK
    if mode == "group":
        channel = await layer.new_channel()
        await layer.group_add(GROUP, channel)
    note("listening", mode)
    while True:
        try:
            message = await layer.receive(channel)
            note("got", message["number"])
        except LostConnection:
            await asyncio.sleep(0.1)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
