"""The Python client: change feeds and channels for asyncio, on redis-py.

async with Client("redis://127.0.0.1:6399") as client:
    async for event in client.feed(prefix=b"user:"):
        ...

async with Client("redis://127.0.0.1:6399") as client:
    channel = client.channel("orders")
    await channel.publish({"total": 3}, id="order-17")
    async with channel.subscribe("me") as messages:
        async for message in messages:
            print(message.id, message.content)

client             Client: a server, its feeds and channels, and the commands about feeds
feed               Feed: one feed over any number of connections
progress           how far a feed has come: where it resumes, and which events it has delivered
link               one connection of a feed
request            the command that starts a feed
event              the events that a feed delivers
listening          feeds for code without an event loop
channel            Channel: publish to a channel, and subscribe
receiving          channels for code without an event loop
interruption       signals while a loop runs for such code
message_reader     MessageReader: the messages of a subscriber, and when they are acknowledged
message_source     ... fetch by fetch, over any number of connections
received_message   a message as its reader gets it
patience           how long a client waits for a server that is away
"""

from __future__ import annotations

from tidelog.channels import ListedChannel, ListedSubscriber, PublishedMessage
from tidelog.client.channel import Channel
from tidelog.client.client import Client, Position
from tidelog.client.event import Checkpoint, Commit, DeleteRange, Event, Expiry, Steady, Value
from tidelog.client.feed import Feed
from tidelog.client.message_reader import MessageReader
from tidelog.client.message_source import ChannelOutage
from tidelog.client.received_message import ReceivedMessage
from tidelog.errors import (
    ChannelError,
    CommandError,
    FeedDiverged,
    NotConfirmed,
    ServerRefused,
    ServerUnreachable,
    SubscriptionNotFound,
)
from tidelog.errors import TooOld as FeedTooOld

__all__ = [
    "Channel",
    "ChannelError",
    "ChannelOutage",
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
    "ListedChannel",
    "ListedSubscriber",
    "MessageReader",
    "NotConfirmed",
    "Position",
    "PublishedMessage",
    "ReceivedMessage",
    "ServerRefused",
    "ServerUnreachable",
    "Steady",
    "SubscriptionNotFound",
    "Value",
]
