"""What jobs say of themselves in /metrics, and what others put in its place."""

from __future__ import annotations

import re
from typing import Any, Final

from tidelog import limits
from tidelog.gateway.pipeline_metrics import pipeline_samples
from tidelog.gateway.sample import render
from tidelog.ids import Ts
from tidelog.keys import JOB_INDEX, PIPELINE_PREFIX
from tidelog.store.keyspace import Database
from tidelog.types.hash_value import hash_of
from tidelog.types.set_value import set_of

NOW_MS: Final = 1_700_000_000_000
VISIBLE_TS: Final = 1_699_999_999_900_000
BEGIN_TS: Final = Ts(VISIBLE_TS - 7_200_000_000)
"""Where the journal begins."""
LAKE: Final = {
    b"state": b"running",
    b"started_ms": b"%d" % (NOW_MS - 60_000),
    b"updated_ms": b"%d" % (NOW_MS - 500),
    b"token": b"7",
    b"ts": b"%d" % (VISIBLE_TS - 250_000),
    b"lag_seconds": b"0.1",
    b"lag_records": b"8123",
    b"batches": b"12",
    b"rows": b"1204000",
    b"batch_seconds": b"0.382",
    b"batch_seconds_p99": b"1.5",
    b"rows_per_second": b"20310.4",
    b"last_error": b"",
}
LINE: Final = re.compile(r'^[a-z_]+(\{([a-z]+="([^"\\\n]|\\["\\n])*",?)+\})? [-0-9.e+]+$')


def shown(jobs: dict[bytes, Any], index: Any = None) -> list[str]:
    database = Database(0)
    database.put(JOB_INDEX.encode(), set_of(list(jobs)) if index is None else index)
    for job, value in jobs.items():
        database.put(PIPELINE_PREFIX.encode() + job, hash_of(value) if isinstance(value, dict) else value)
    lines = render(pipeline_samples(database, NOW_MS, VISIBLE_TS, lambda ts: max(ts, BEGIN_TS))).splitlines()
    names = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(names) == len(set(names)), "samples of a metric do not follow each other"
    samples = [line for line in lines if line and not line.startswith("#")]
    assert all(map(LINE.match, samples)), samples
    assert len(samples) == len({line.rpartition(" ")[0] for line in samples}), "a series comes twice"
    return [line.removeprefix("tidelog_pipeline_") for line in samples]


def test_a_job() -> None:
    assert shown({b"lake": LAKE}) == [
        'up{job="lake"} 1',
        'updated_timestamp_seconds{job="lake"} 1699999999.5',
        'started_timestamp_seconds{job="lake"} 1699999940',
        'lag_seconds{job="lake"} 0.25',
        'lag_records{job="lake"} 8123',
        'rows_total{job="lake"} 1204000',
        'batches_total{job="lake"} 12',
        'batch_seconds{job="lake"} 0.382',
        'rows_per_second{job="lake"} 20310.4',
        'figure{job="lake",name="batch_seconds_p99"} 1.5',
    ]


def test_several_jobs_share_metrics() -> None:
    found = shown(
        {b"lake": LAKE, b"view:orders": {**LAKE, b"groups": b"5"}, b"compress": {b"state": b"done", b"streams": b"6"}}
    )
    assert found[:3] == ['up{job="lake"} 1', 'up{job="view:orders"} 1', 'up{job="compress"} 0']
    assert found[-1] == 'figure{job="compress",name="streams"} 6'
    assert 'figure{job="view:orders",name="groups"} 5' in found


def test_a_job_is_up_while_it_is_heard_of() -> None:
    def up(**more: bytes) -> str:
        fields = {**LAKE, **{name.encode(): value for name, value in more.items()}}
        return shown({b"lake": fields})[0][-1]

    assert up(updated_ms=b"%d" % (NOW_MS - 10_000)) == "1"
    assert up(updated_ms=b"%d" % (NOW_MS - 10_001)) == "0"
    assert up(updated_ms=b"soon") == "0"
    assert up(state=b"done") == "0"


def test_lag_grows_when_the_job_is_gone() -> None:
    fields = {**LAKE, b"ts": b"%d" % (VISIBLE_TS - 3_600_000_000), b"state": b"failed"}
    assert 'lag_seconds{job="lake"} 3600' in shown({b"lake": fields})
    assert 'lag_seconds{job="lake"} 7200' in shown({b"lake": {b"ts": b"0"}}), "longer than there is a journal"
    ahead = {**LAKE, b"ts": b"%d" % (VISIBLE_TS + 5)}
    assert 'lag_seconds{job="lake"} 0' in shown({b"lake": ahead})


def test_there_are_no_jobs() -> None:
    database = Database(0)
    assert list(pipeline_samples(database, NOW_MS, VISIBLE_TS, lambda ts: max(ts, BEGIN_TS))) == []
    assert shown({}, b"a string") == []
    assert shown({b"lake": LAKE}, {b"lake": b"a hash"}) == []
    assert shown({b"lake": b"a string", b"gone": set_of([b"a set"])}) == []


def test_what_is_no_number_is_left_out() -> None:
    for bad in (b"", b"soon", b"nan", b"inf", b"-inf", b"1e999", b"9" * 100_000, b"\xff"):
        assert shown({b"lake": dict.fromkeys(LAKE, bad)}) == ['up{job="lake"} 0'], bad
    assert 'rows_total{job="lake"} 1' + 20 * "0" in shown({b"lake": {b"rows": b"1e20"}})


def test_names_that_would_break_the_format() -> None:
    names = [b'quo"te', b"line\nfeed", b"back\\slash", b"\xff", b"\xfe", b"\\xff", "ü".encode(), b"", b"x" * 201]
    found = shown({name: {b"state": b"done", name: b"1"} for name in names})
    ups = [line for line in found if line.startswith("up")]
    assert ups == [
        'up{job="quo\\"te"} 0',
        'up{job="line\\nfeed"} 0',
        'up{job="back\\\\slash"} 0',
        'up{job="\\\\xff"} 0',
        'up{job="\\\\xfe"} 0',
        'up{job="ü"} 0',
        'up{job=""} 0',
    ]
    assert 'figure{job="quo\\"te",name="quo\\"te"} 1' in found


def test_how_much_is_shown_is_bounded() -> None:
    fields = {b"f%d" % number: b"1" for number in range(1000)}
    found = shown({b"j%d" % number: fields for number in range(1000)})
    jobs = {line for line in found if line.startswith("up")}
    assert len(jobs) == limits.PIPELINE_JOBS_SHOWN_MAX
    assert len(found) == len(jobs) * (1 + limits.PIPELINE_FIELDS_SHOWN_MAX)
