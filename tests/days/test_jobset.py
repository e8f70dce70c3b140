"""Keys of job sets: what they are called, and what the index's members mean."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.days.days_of_events import DAY_1, DAY_2, JOBSET
from tidelog import limits
from tidelog.days.jobset import JobSet, jobset_of_index
from tidelog.errors import ClientError, LimitExceeded

NAMES = st.text("a{}_%7B é\n", min_size=1, max_size=12)


def test_keys_are_what_is_promised() -> None:
    jobset = JobSet("my_queue", "50%{x}")
    tag = b"{my%5Fqueue_50%25%7Bx%7D}"
    assert jobset.hot(DAY_1).key == tag + b"_2024-05-01"
    assert jobset.compressed(DAY_1).key == tag + b"_compressed_2024-05-01"
    assert (jobset.index, jobset.late, jobset.fence) == (tag + b"_streams", tag + b"_late", tag + b"_fence")


@given(NAMES, NAMES, NAMES, NAMES)
def test_different_job_sets_have_different_keys(queue: str, jobset: str, other_queue: str, other_jobset: str) -> None:
    one, other = JobSet(queue, jobset), JobSet(other_queue, other_jobset)
    assert (one.index == other.index) == ((queue, jobset) == (other_queue, other_jobset))
    for key in (one.index, one.late, one.hot(DAY_1).key, one.compressed(DAY_1).key):
        # What Redis Cluster hashes: from the first brace to the next closing one.
        assert key[1 : key.index(b"}")] == one.index[1 : one.index.rindex(b"}")]


@given(NAMES, NAMES)
def test_an_index_tells_its_job_set(queue: str, jobset: str) -> None:
    found = jobset_of_index(JobSet(queue, jobset).index)
    assert found is not None
    assert (found.queue, found.jobset) == (queue, jobset)


@pytest.mark.parametrize(
    "key", [b"{a}_streams", b"a_b_streams", b"{a_b}_late", b"{a_b_c}_streams", b"{a%41_b}_streams"]
)
def test_other_keys_are_no_index(key: bytes) -> None:
    assert jobset_of_index(key) is None


def test_streams_are_ordered_by_day_and_the_compressed_one_is_first() -> None:
    hot_1, hot_2, compressed_2 = JOBSET.hot(DAY_1), JOBSET.hot(DAY_2), JOBSET.compressed(DAY_2)
    assert JOBSET.streams({hot_2.key, compressed_2.key, hot_1.key}) == [hot_1, compressed_2, hot_2]
    assert JOBSET.stream(compressed_2.key) == (date(2024, 5, 2), False, compressed_2.key)


def test_members_that_name_no_day_are_left_alone() -> None:
    other = JobSet("queue", "other").hot(DAY_1).key
    bad = [b"{queue_jobs}_2024-02-31", b"{queue_jobs}_2024-05-01x", b"{queue_jobs}_streams", b"", other, b"\xff"]
    assert JOBSET.streams(bad) == []


def test_names_have_bounds() -> None:
    most = limits.DAYS_NAME_BYTES_MAX
    JobSet("q" * (most - 1), "j" * most)
    with pytest.raises(LimitExceeded):
        JobSet("q", "j" * (most + 1))
    with pytest.raises(ClientError, match="queue needs a name"):
        JobSet("", "j")
