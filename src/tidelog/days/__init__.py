"""Day streams: the events of a job set, one stream a UTC day, on Tidelog or any Redis.

jobset = JobSet("queue", "jobset")
Writer(redis.Redis(port=6399), jobset).write([Message(EventId(1731700000000, 0), 1731700000000, b'{"state": "done"}')])
for message in Reader(redis.Redis(port=6399), jobset).until_now():
    ...

server       server_at: a redis-py client of a server, or of several that follow each other
jobset       the keys of a job set
message      a message: id, time and event; as an entry of a stream and as a line of JSON
batch        many messages in one entry of a compressed stream
exchange     transactions on redis-py, without Lua
index        the streams of a job set, and their last ids
writer       writes messages into the streams of their days, each message once
reader       reads messages, over all days
inputs       reads messages to write: from lines, or from another stream
compressor   turns a hot day into a compressed one
retention    removes old days
saving       what compression saves, and the days that it left hot
fence        refuses a job that a later one has replaced
lease        lets one job run at a time
listing      lists the job sets and days of a server
"""

from __future__ import annotations

from tidelog.days.compressor import Compressed, Outcome, compress_day
from tidelog.days.jobset import JobSet
from tidelog.days.lease import Lease
from tidelog.days.message import EventId, Message
from tidelog.days.reader import BEGINNING, NOW, Reader
from tidelog.days.retention import expire_days
from tidelog.days.server import server_at
from tidelog.days.writer import Writer, Written
from tidelog.errors import BadMessage, DayGone, FencedOff, LeaseLost

__all__ = [
    "BEGINNING",
    "NOW",
    "BadMessage",
    "Compressed",
    "DayGone",
    "EventId",
    "FencedOff",
    "JobSet",
    "Lease",
    "LeaseLost",
    "Message",
    "Outcome",
    "Reader",
    "Writer",
    "Written",
    "compress_day",
    "expire_days",
    "server_at",
]
