"""A gateway's webhooks in a process of its own, to be killed.

    python -m tests.channels.webhooks.runner_process URL RULES

It writes a line when it runs, and stops in order on SIGTERM.
"""

from __future__ import annotations

import asyncio
import signal
import sys

from tests.channels.webhooks.gateways import gateway
from tests.channels.webhooks.receivers import set_quick_limits
from tidelog import limits
from tidelog.channels.rules_file import ChannelRulesFile


async def run(url: str, path: str) -> None:
    set_quick_limits(lambda name, value: setattr(limits, name, value))
    file = ChannelRulesFile(path)
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with gateway(url, lambda: file.rules):
        sys.stdout.write("running\n")
        sys.stdout.flush()
        await stopped.wait()


if __name__ == "__main__":
    asyncio.run(run(*sys.argv[1:]))
