"""What the demo shows of a running server, one function an act: messages come in, are moved into day streams by
consumers that crash, and survive a crash of the server. Every claim is checked against the ledger."""

from __future__ import annotations

import signal
import time
from typing import Final

from demo.mover import RETRY_MS
from demo.processes import DemoProcess, Line
from demo.scene import WAIT_S_MAX, Scene, stream_of
from tidelog.errors import EnvironmentFault

_FIRST_PART: Final = 0.6
"""Of the week: it is there before consumers start; the rest comes while they work."""
_CRASH_AFTER: Final = 0.2
_AGAIN_S: Final = 0.01
_PAGES_LEFT_MIN: Final = 3
"""For the next act: pages that come before, in and after the crash of the server."""


def bring_in(scene: Scene) -> None:
    """Append the first part of the week to the incoming streams."""
    stage, week = scene.stage, scene.week
    stage.act(f"Bring in the events of {len(week.days)} days, from {week.days[0]} to {week.days[-1]}")
    stage.say(f"{week.jobs:,} jobs in {len(week.seen)} job sets; the producer numbers its calls: none counts twice.")
    begun_s = time.monotonic()
    scene.bring_in(int(len(scene.coming) * _FIRST_PART))
    took_s = time.monotonic() - begun_s
    appended = sum(scene.appended.values())
    stage.figure("events made", f"{week.events:,} ({week.event_bytes / 1e6:.1f} MB)", week.events)
    stage.figure("appended so far", f"{appended:,} in {took_s:.1f} s ({appended / took_s:,.0f}/s)", appended)
    ends = [scene.progress(stream).last_offset for stream in scene.appended]
    stage.claim("the incoming streams have exactly these", ends == list(scene.appended.values()))


def crash_consumer(scene: Scene) -> None:
    """Two consumers share the work; one is killed with a page in its hands."""
    stage = scene.stage
    stage.act("Move them into day streams by two consumers, and kill one with a page in its hands")
    stage.say(f"A page that is not acknowledged within {RETRY_MS / 1000:g} s is given to another consumer.")
    begun_s = time.monotonic()
    one = scene.start_mover("consumer-1")
    one.wait_until(lambda: bool(one.lines), "it took a page", WAIT_S_MAX)
    two = scene.start_mover("consumer-2")
    scene.wait_until_moved(int(sum(scene.appended.values()) * _CRASH_AFTER))
    page = _kill_with_page(scene, one)
    if page is None:
        stage.claim("a consumer was killed between a delivery and its acknowledgement", False)
        return
    what = f"{page['last'] - page['first'] + 1} entries of {page['held']}, from {page['first']}"
    stage.figure(f"killed: process {one.pid}", f"with {what}")

    def redone() -> list[Line]:
        places = (page["held"], page["first"], page["last"])
        return [line for line in two.told if (line.get("done"), line["first"], line["last"]) == places]

    two.wait_until(lambda: bool(redone()), "the page was done again", WAIT_S_MAX)
    again = redone()[0]
    took_s = time.monotonic() - begun_s
    known = f"{again['duplicate']} of them were written before and not again"
    stage.figure(f"taken over: process {two.pid}", known, again["duplicate"])
    stage.figure("moved so far", f"{scene.moved:,} in {took_s:.1f} s", scene.moved)
    size = page["last"] - page["first"] + 1
    stage.claim(
        "all entries that it held were delivered again, to the other one",
        again["written"] + again["duplicate"] == size and again["late"] == 0,
    )


def _kill_with_page(scene: Scene, mover: DemoProcess) -> Line | None:
    """Kill a consumer that has written a page and not acknowledged it. The page, or None if it never got another."""
    mover.say("hold")
    deadline_s = time.monotonic() + WAIT_S_MAX
    while "held" not in (page := mover.last):
        if mover.has_ended or time.monotonic() > deadline_s:
            return None
        if len(scene.coming) > _PAGES_LEFT_MIN and scene.moved == sum(scene.appended.values()):
            scene.bring_in(1)
        time.sleep(_AGAIN_S)
    progress = scene.progress(page["held"])
    mover.kill()
    return page if progress.pending and progress.oldest_pending == page["first"] else None


def crash_server(scene: Scene) -> None:
    """Kill the server while a producer, a consumer and a feed are connected, and start it again."""
    stage = scene.stage
    stage.act("Kill the server in the middle of it, and start it again on the same data")
    scene.bring_in(len(scene.coming) // 2)
    middle = scene.coming.popleft()
    pid = scene.server.pid
    connection = scene.client.connection_pool.get_connection()
    connection.send_command(*middle.command)
    scene.server.kill()
    connection.disconnect()
    scene.client.connection_pool.release(connection)
    acknowledged, done = dict(scene.appended), scene.messages_done()
    start_s = scene.server.start_again()
    count, moved = sum(acknowledged.values()), sum(map(len, done.values()))
    stage.figure(f"killed: process {pid}", f"with a call under way, {count:,} entries and {moved:,} events confirmed")
    stage.figure("serving again", f"after {start_s:.1f} s, as process {scene.server.pid}", round(start_s, 2))
    ends = {stream: scene.progress(stream).last_offset for stream in acknowledged}
    stage.claim(
        "every entry that was confirmed to the producer is there",
        all(ends[stream] >= count for stream, count in acknowledged.items()),
    )
    missing = {
        f"{jobset.queue}/{jobset.jobset}": done[f"{jobset.queue}/{jobset.jobset}"] - scene.read_ids(jobset)
        for jobset in scene.week.jobsets
    }
    stage.claim(f"every event that was acknowledged is there, all {moved:,}", moved > 0 and not any(missing.values()))
    scene.append(middle)
    scene.bring_in(len(scene.coming))
    scene.wait_until_moved(scene.week.events)
    took_s, events = time.monotonic() - scene.moving_since_s, scene.week.events
    moved_in = f"{events:,} events in {took_s:.1f} s ({events / took_s:,.0f}/s), both crashes included"
    stage.figure("all are moved", moved_in, round(events / took_s))
    made = {stream_of(queue): len(messages) for queue, messages in scene.week.by_queue.items()}
    ends = {stream: scene.progress(stream).last_offset for stream in scene.appended}
    stage.claim(
        "the call whose reply was lost, sent again, counts once: the streams are as long as the week", ends == made
    )


def compare(scene: Scene) -> None:
    """What readers and the feed have seen, beside the ledger."""
    stage, week = scene.stage, scene.week
    stage.act("Compare: the ledger, a reader, and the change feed that was there all the time")
    begun_s = time.monotonic()
    read = scene.read_all()
    took_s = time.monotonic() - begun_s
    count = sum(seen.messages for seen in read.values())
    stage.figure("read back", f"{count:,} events in {took_s:.1f} s ({count / took_s:,.0f}/s)", count)
    stage.claim("nothing is lost, doubled or out of order: every id and byte is as it was made", read == week.seen)
    late = sum(scene.client.xlen(jobset.late) for jobset in week.jobsets)
    stage.claim("no event came too late for its day", late == 0)
    told = scene.feed_until_now()
    seen = {name: tuple(each) for name, each in told["seen"].items()}
    count = sum(int(each[0]) for each in seen.values())
    stage.figure("told by the feed", f"{count:,} events; it reconnected {told['reconnected']} time(s)", count)
    stage.claim("the feed resumed after the crash by itself", told["reconnected"] >= 1)
    stage.claim("the feed has told all of them, once and in order, byte for byte", seen == week.seen)
    for mover in scene.movers:
        if not mover.has_ended and mover.stop() not in (0, -signal.SIGTERM):
            raise EnvironmentFault(f"{mover.name}: {mover.complaint()}")
