"""Options: what is asked for is taken as what it is, and what makes no sense is refused with what would."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType
from redis.exceptions import MovedError

from tests.spark.conftest import Peer
from tests.spark.in_process import micro_batches, reader, source_of
from tidelog.address import PORT_DEFAULT, URL_DEFAULT
from tidelog.errors import ClientError
from tidelog.spark.endpoint import take_endpoint
from tidelog.spark.options import BadOption, Options, Target, moment_us


def test_a_node_of_a_cluster_is_named(plain: Peer) -> None:
    server = take_endpoint(Options({"url": plain.url}))
    with pytest.raises(ClientError, match="this is a cluster, and the source reads from one server"), server.connect():
        raise MovedError("1234 127.0.0.1:7001")


def test_a_target_is_named_by_an_option_or_a_path() -> None:
    for given in ({"Stream": "orders"}, {"path": "stream:orders"}):
        target = Target(given, ["stream", "journal"])
        assert (target.kind, target.name) == ("stream", "orders")
    assert Target({"path": "stream:a:b"}, ["stream"]).name == "a:b"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "give exactly one of the options journal, stream; there is nothing"),
        ({"stream": "a", "journal": "b"}, "there is stream=a, journal=b"),
        ({"stream": "a", "path": "stream:b"}, "there is stream=a, stream=b"),
        ({"path": "orders"}, "'orders' cannot be loaded: give journal:NAME or stream:NAME"),
        ({"path": "topic:orders"}, "cannot be loaded"),
        ({"stream": ""}, "the option stream is empty"),
    ],
)
def test_a_target_that_is_none(given: dict[str, str], says: str) -> None:
    with pytest.raises(BadOption, match=says):
        Target(given, ["stream", "journal"])


def test_errors_list_the_kinds_that_users_have() -> None:
    for given in ({}, {"path": "topic:orders"}):
        with pytest.raises(BadOption, match=r"days.* or feed:NAME or |days, feed, journal, state, stream;") as error:
            source_of(**given).schema()
        assert "feedparts" not in str(error.value)


def test_moments() -> None:
    assert moment_us("since", "1970-01-01T00:00:01Z") == 1_000_000
    assert moment_us("since", "1970-01-01T01:00:00+01:00") == 0
    assert moment_us("since", "1970-01-02") == 86_400_000_000
    assert moment_us("since", "1700000000000000") == 1_700_000_000_000_000
    with pytest.raises(BadOption, match="since='soon'"):
        moment_us("since", "soon")


def test_what_nobody_took_is_refused_with_what_there_is() -> None:
    options = Options({"Rows": "1", "rwos": "2", "checkpointLocation": "x"})
    assert options.number("rows") == 1
    with pytest.raises(BadOption, match="a thing has no option 'rwos': there are rows"):
        options.end("a thing")


def test_case_and_underscores_of_a_name_do_not_count() -> None:
    for name in ("minPartitions", "min_partitions", "MINPARTITIONS", "minpartitions"):
        options = Options({name: "3"})
        assert options.number("minPartitions") == options.number("min_partitions") == 3
        options.end("a thing")
    with pytest.raises(BadOption, match="min_partitions and minPartitions are one option, and contradict each other"):
        Options({"min_partitions": "3", "minPartitions": "4"})


def test_what_opens_a_url_gets_its_options_as_they_are() -> None:
    options = Options({"storage.access_key_id": "a", "storage.Region": "b", "min_partitions": "1"})
    assert options.prefixed("storage.") == {"access_key_id": "a", "region": "b"}
    with pytest.raises(BadOption, match=r"no option 'min_partitions': there are storage\.access_key_id"):
        options.end("a thing")


def test_an_older_name_is_the_same_option() -> None:
    for name in ("failOnDataLoss", "fail_on_loss", "failOnLoss"):
        assert not Options({name: "false"}).flag("failOnDataLoss", True, older="fail_on_loss")
    with pytest.raises(BadOption, match="failOnDataLoss and fail_on_loss contradict each other"):
        Options({"fail_on_loss": "false", "failOnDataLoss": "true"}).flag("failOnDataLoss", True, older="fail_on_loss")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("500ms", 0.5), ("30s", 30.0), ("15m", 900.0), ("15 min", 900.0), ("2h", 7200.0), ("1D", 86400.0)],
)
def test_times(text: str, expected: float) -> None:
    assert Options({"maxTriggerDelay": text}).duration_s("maxTriggerDelay") == expected


@pytest.mark.parametrize("text", ["15", "-1s", "1.5h", "soon", "3 weeks", ""])
def test_times_that_are_none(text: str) -> None:
    with pytest.raises(BadOption, match=r"maxTriggerDelay=.*: give a time such as 500ms, 30s, 15m or 2h"):
        Options({"maxTriggerDelay": text}).duration_s("maxTriggerDelay")


def test_the_moment_at_which_to_begin() -> None:
    assert Options({"starting_timestamp": "2025-11-15T00:00:00Z"}).starting_us() == 1_763_164_800_000_000
    assert Options({"startingTimestamp": "1763164800000000"}).starting_us() == 1_763_164_800_000_000
    assert Options({}).starting_us() is None
    with pytest.raises(BadOption, match="lies before 1974: give µs and not ms"):
        Options({"startingTimestamp": "1763164800000"}).starting_us()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"bogus": 1}, "no option 'bogus': there are database, failOnDataLoss, flight"),
        ({"start": "latest"}, "no option 'start'"),
        ({"from_offset": 1, "from_id": "1-0"}, "from_offset and from_id contradict each other"),
        ({"to_time": "2025-01-01", "to_id": "1-0"}, "to_id and to_time contradict each other"),
        ({"from_id": "1-0-0"}, "from_id='1-0-0'"),
        ({"from_offset": "x"}, "from_offset='x'"),
        ({"partition_rows": 0}, "partition_rows='0': give a number from 1"),
        ({"fail_on_loss": "maybe"}, "fail_on_loss='maybe': give true or false"),
        ({"url": "http://127.0.0.1"}, "redis://, rediss://, unix:// or redis.sentinel://, not with 'http'"),
        ({"url": "redis+cluster://h"}, "a Redis Cluster cannot be used here"),
        ({"url": "redis://h,i", "flight": "grpc://h:1"}, "flight names one server, and the url several"),
        ({"from_followers": "maybe"}, "from_followers='maybe': give true or false"),
        ({"url": "redis://127.0.0.1:1/3", "database": 4}, "it names database 3, but the option says 4"),
        ({"url": "redis://:secret@127.0.0.1:1", "password_file": "f"}, "password_file contradicts the url"),
        ({"password_file": "no-such-file"}, "password_file names no-such-file, which cannot be read"),
        ({"flight": "127.0.0.1:8499"}, "grpc://HOST:PORT"),
    ],
)
def test_bad_options_of_a_stream(options: dict[str, Any], says: str) -> None:
    with pytest.raises(BadOption, match=says):
        reader(stream="s", **options)


def test_bad_options_of_a_stream_that_is_followed() -> None:
    for options, says in (
        ({"from_offset": 1}, "no option 'from_offset'"),
        ({"start": "yesterday"}, "start='yesterday'"),
        ({"max_rows_per_trigger": 0}, "max_rows_per_trigger"),
    ):
        with pytest.raises(BadOption, match=says):
            micro_batches(stream="s", **options)


def test_a_schema_that_cannot_be(tide: Peer) -> None:
    for field, says in (
        (StructField("price", LongType()), "there is no column 'price': there are stream, offset"),
        (StructField("offset", StringType()), "column offset is bigint, not string"),
    ):
        with pytest.raises(BadOption, match=says):
            reader(StructType([field]), stream="s", url=tide.url)


def test_what_a_kind_does_not_offer() -> None:
    with pytest.raises(ClientError, match="a journal cannot be read as a stream"):
        micro_batches(journal="data")
    with pytest.raises(ClientError, match="a journal cannot be written"):
        source_of(journal="data").writer(StructType(), False)
    with pytest.raises(ClientError, match="rows can only be appended"):
        source_of(stream="s").writer(StructType(), True)


def test_a_url_without_a_port_means_the_port_that_the_server_listens_on() -> None:
    assert take_endpoint(Options({"url": "redis://h"})).url == f"redis://h:{PORT_DEFAULT}"
    assert take_endpoint(Options({})).url == URL_DEFAULT


def test_a_server_that_is_not_there_and_a_password_that_is_wrong(tide: Peer) -> None:
    with pytest.raises(Exception, match=r"redis://127\.0\.0\.1:1: "):
        reader(stream="s", url="redis://127.0.0.1:1").partitions()
    with pytest.raises(Exception, match="does not let us in"):
        reader(stream="s", url=tide.url.replace("//", "//:wrong@")).partitions()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://:hidden@h:99999", "its port is not a number from 1 to 65535"),
        ("http://:hidden@h", "not with 'http'"),
        ("redis://:hidden@h/x", "what follows the port must be the number of a database"),
        ("redis://:hidden@h?ssl_cert_reqs=none", "settings after a \\? are not understood"),
    ],
)
def test_a_url_that_is_none_is_refused_without_its_password(url: str, says: str) -> None:
    with pytest.raises(BadOption, match=says) as caught:
        reader(days="q/j", url=url)
    assert "hidden" not in str(caught.value)
