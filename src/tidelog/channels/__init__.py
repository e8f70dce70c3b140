"""Channels: durable publish/subscribe, on Tidelog or any Redis. Each subscriber gets every message, in order.

async with Channels.at("redis://127.0.0.1:6399") as channels:
    await channels.subscribe("news", "me")
    await channels.publish("news", message_of("msg123", {"text": "hello!"}))
    fetched = await channels.fetch_when_there("news", "me", timeout_s=30)
    await channels.acknowledge("news", "me", fetched.handle)

channels        the calls: subscribe, publish, fetch, acknowledge, list
names           names and keys
message         a message, and its body in the backend
clock           places in a channel, on a ring
clock_lua       the same for scripts
scripts         the atomic steps, in Lua
handle          receipt handles
policy          who may use which channel, and how long it keeps messages
rules           ... by configuration: groups of channels
rules_file      ... in a file that is read again
rules_policy    ... asked by the HTTP edge
patterns        regular expressions for names, with a bounded cost
settings_table  reads a TOML table, and says what is wrong with it
templates       texts with places that are filled in
token_rule      what a group demands of tokens
token_keys      keys of tokens, in files
tokens          checks tokens
revocations     tokens that were revoked
webhooks        sends messages to URLs
wakes           tells those who wait that there may be something
listing         lists channels and subscribers
backend         where channels are kept: a server, or the one that Sentinels name
pipelined       ... or one that is connected from inside
cluster         ... or a Redis Cluster
closing         how a client is closed so that nothing stays open
http/           the calls over HTTP
"""

from __future__ import annotations

from tidelog.channels.backend import Backend, Confirmation, backend_at
from tidelog.channels.channels import Channels, ChannelSubscription, FetchedMessages, PublishedMessage
from tidelog.channels.listing import ListedChannel, ListedPage, ListedSubscriber
from tidelog.channels.message import ChannelMessage, ChannelPlace, made_message, message_of
from tidelog.channels.names import ChannelKeys
from tidelog.channels.policy import ChannelGrant, ChannelPolicy, OpenPolicy
from tidelog.errors import (
    AckHandleMalformed,
    BadChannelInput,
    ChannelError,
    ChannelTokenMissing,
    ChannelTokenRefused,
    InvalidChannel,
    MessageTooLarge,
    NotConfirmed,
    SubscriptionNotFound,
)

__all__ = [
    "AckHandleMalformed",
    "Backend",
    "BadChannelInput",
    "ChannelError",
    "ChannelGrant",
    "ChannelKeys",
    "ChannelMessage",
    "ChannelPlace",
    "ChannelPolicy",
    "ChannelSubscription",
    "ChannelTokenMissing",
    "ChannelTokenRefused",
    "Channels",
    "Confirmation",
    "FetchedMessages",
    "InvalidChannel",
    "ListedChannel",
    "ListedPage",
    "ListedSubscriber",
    "MessageTooLarge",
    "NotConfirmed",
    "OpenPolicy",
    "PublishedMessage",
    "SubscriptionNotFound",
    "backend_at",
    "made_message",
    "message_of",
]
