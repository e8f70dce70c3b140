"""The Python client: change feeds for asyncio, on redis-py.

async with Client("redis://127.0.0.1:6399") as client:
    async for event in client.feed(prefix=b"user:"):
        ...

client      Client: a server, its feeds, and the commands about feeds
feed        Feed: one feed over any number of connections
patience    how long a client waits for a server that is away
progress    how far a feed has come: where it resumes, and which events it has delivered
link        one connection of a feed
request     the command that starts a feed
event       the events that a feed delivers
listening   feeds for code without an event loop
"""

from __future__ import annotations

from tidelog.client.client import Client, Position
from tidelog.client.event import Checkpoint, Commit, DeleteRange, Event, Expiry, Steady, Value
from tidelog.client.feed import Feed
from tidelog.errors import CommandError, FeedDiverged, ServerRefused, ServerUnreachable
from tidelog.errors import TooOld as FeedTooOld

__all__ = [
    "Checkpoint",
    "Client",
    "CommandError",
    "Commit",
    "DeleteRange",
    "Event",
    "Expiry",
    "Feed",
    "FeedDiverged",
    "FeedTooOld",
    "Position",
    "ServerRefused",
    "ServerUnreachable",
    "Steady",
    "Value",
]
