"""Day streams: the events of a job set, one stream a UTC day, on Tidelog or any Redis (`pip install tidelog[client]`).

jobset = JobSet("queue", "jobset")
Writer(redis.Redis(port=6399), jobset).write([Message(EventId(1731700000000, 0), 1731700000000, b'{"state": "done"}')])
for message in Reader(redis.Redis(port=6399), jobset).until_now():
    ...

jobset       the keys, and the streams that the index names
message      id, time and event; as an entry, as a line of JSON
batch        many messages in one entry of a compressed stream
exchange     transactions, on redis-py
index        which streams there are, and how far they go
writer       messages into the streams of their days, each once
reader       messages out of them, over all days
inputs       where messages come from: lines, or another stream
compressor   one day from hot to compressed
retention    old days go
fence        who came later wins
lease        one job at a time
listing      which job sets and days a server has
"""

from __future__ import annotations

from tidelog.days.compressor import Compressed, Outcome, compress_day
from tidelog.days.jobset import JobSet
from tidelog.days.lease import Lease
from tidelog.days.message import EventId, Message
from tidelog.days.reader import BEGINNING, NOW, Reader
from tidelog.days.retention import expire_days
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
]
