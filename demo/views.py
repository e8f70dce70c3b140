"""The views of the demo: how they are declared, and what they have to be by the ledger.

One is over the events of a job set, over all days of it, compressed or not. The other is over keys: an application
keeps a hash `job:<id>` for each job, with its queue and its state.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import Any, Final

from demo.week import PROFILES, Week

[PROFILE] = (each for each in PROFILES if (each.queue, each.jobset) == ("research", "sweeps"))
"""The job set whose events are viewed, and which goes on while views are watched."""
EVENTS: Final = "events_by_day"
JOBS: Final = "jobs_by_state"
JOB_PREFIX: Final = "job:"
TOML: Final = f"""\
[views.{EVENTS}]
source = "days:{PROFILE.queue}/{PROFILE.jobset}"
sql = "select day, event, count(*) as n, count(distinct node) as nodes from source group by day, event"
key = ["day", "event"]

[views.{JOBS}]
source = "prefix:{JOB_PREFIX}"
sql = "select queue, state, count(*) as n from source group by queue, state"
key = ["queue", "state"]
"""

Rows = dict[str, dict[str, str]]
"""Of a view, by key: the fields of the hash `view:<name>:<key>`."""


def jobs_of(week: Week) -> dict[str, tuple[str, str]]:
    """Queue and state of each job: what its last event says."""
    jobs: dict[str, tuple[str, str]] = {}
    for queue, messages in week.by_queue.items():
        for _, message in messages:
            event = json.loads(message.event)
            jobs[event["job_id"]] = queue, event["event"]
    return jobs


def ledger_rows(week: Week) -> dict[str, Rows]:
    """Both views, as they have to be."""
    counts: Counter[tuple[str, str]] = Counter()
    nodes: dict[tuple[str, str], set[str]] = defaultdict(set)
    for jobset, message in week.by_queue[PROFILE.queue]:
        if jobset == PROFILE.jobset:
            event = json.loads(message.event)
            place = message.day.isoformat(), event["event"]
            counts[place] += 1
            nodes[place] |= {event["node"]} if "node" in event else set()
    events = {
        f"{day}:{name}": {"day": day, "event": name, "n": str(count), "nodes": str(len(nodes[day, name]))}
        for (day, name), count in counts.items()
    }
    states = Counter(jobs_of(week).values())
    jobs = {
        f"{queue}:{state}": {"queue": queue, "state": state, "n": str(count)}
        for (queue, state), count in states.items()
    }
    return {EVENTS: events, JOBS: jobs}


def view_key(view: str, key: str) -> str:
    """The name of a row's hash."""
    return f"view:{view}:{key}"


def read_view(client: Any, view: str) -> Rows:
    """The hashes of a view, as an application reads them."""
    keys = list(client.scan_iter(view_key(view, "*"), count=1000))
    return {
        key.decode().removeprefix(view_key(view, "")): {
            field.decode(): value.decode() for field, value in client.hgetall(key).items()
        }
        for key in keys
    }
