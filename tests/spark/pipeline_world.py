"""A lake and views under load: the jobs as processes that can be killed, a load, and what must hold at the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, Final

from deltalake import DeltaTable

from tests.integration.server_process import ServerProcess, environment
from tests.spark.in_process import read
from tests.spark.load import Load
from tests.spark.standalone import command_of, descendants

WAIT_S_MAX: Final = 180.0
END_S_MAX: Final = 300.0
OWN_KEYS: Final = b"tidelog:pipeline:"
VIEWS: Final = """
[views.by_state]
source = "prefix:order:"
sql = "select state, count(*) as n, sum(cast(amount as bigint)) as total, max(amount) as most from source group by 1"
key = ["state"]

[views.by_tag]
source = "stream:log"
sql = "select tag, count(*) as n, latest(number) as number from source group by tag"
key = ["tag"]

[views.named]
source = "prefix:order:"
sql = '''
select c.name as name, min(cast(source.amount as bigint)) as least, avg(cast(source.amount as double)) as mean
from source left join customers c on c.key = concat('customer:', source.customer) group by c.name'''
key = "name"
lookups.customers = "prefix:customer:"
"""


class PipelineLoad(Load):
    """Changes keys of all types and a stream, in transactions over both shards, until it is told to stop."""

    def __init__(self, server: ServerProcess, seed: int) -> None:
        super().__init__(server)
        self._rng = Random(seed)
        self.count = 0

    def _write(self) -> None:
        rng, pipeline = self._rng, self._client.pipeline(transaction=True)
        for _ in range(rng.randrange(1, 12)):
            self.count += 1
            key = f"order:{rng.randrange(300)}"
            state, amount, customer = rng.choice("abcde"), rng.randrange(1000), rng.randrange(9)
            match rng.randrange(9):
                case 0 | 1 | 2:
                    pipeline.set(key, f'{{"state":"{state}","amount":{amount},"customer":{customer}}}')
                case 3:
                    pipeline.delete(key)
                case 4:
                    pipeline.delete(f"hash:{key}")
                    pipeline.hset(f"hash:{key}", mapping={"state": state, "amount": amount})
                case 5:
                    pipeline.hset(f"customer:{rng.randrange(9)}", "name", rng.choice("xyz"))
                case 6:
                    pipeline.zadd("scores", {str(customer): amount})
                    pipeline.srem("members", customer)
                    pipeline.sadd("members", amount % 50)
                case 7:
                    pipeline.execute_command("TWRITE", "log", rng.choice("uvw"), f'{{"number":{self.count}}}')
                case _:
                    pipeline.delete(key)
                    pipeline.hset(key, mapping={"state": state, "amount": amount, "note": "n"})
        pipeline.execute()


class PipelineProcess:
    """`tidelog pipeline lake` or `view`, with all that it starts."""

    def __init__(self, name: str, url: str, folder: Path, *more: str) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        words = ["pipeline", name, "--url", url, "--to", str(folder / "lake"), "--lease-seconds", "8", *more]
        if name == "view":
            (folder / "views.toml").write_text(VIEWS)
            words += ["--file", str(folder / "views.toml")]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "tidelog.cli", *words],
                env={**environment(), "PYSPARK_PYTHON": sys.executable},
                cwd=folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        """All of it, at once."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)

    def kill_worker(self, rng: Random) -> bool:
        """One of the Python processes that do the work of tasks; False: there was none."""
        workers = [pid for pid in descendants([self.process.pid]) if "pyspark.daemon" in command_of(pid)]
        if not workers:
            return False
        with suppress(ProcessLookupError):
            os.kill(rng.choice(workers), signal.SIGKILL)
        return True

    def end(self) -> None:
        """By itself, or by SIGTERM if it would not."""
        status = self.process.wait(END_S_MAX)
        assert status == 0, self.tail()

    def terminate(self) -> int:
        self.process.terminate()
        return self.process.wait(END_S_MAX)

    def tail(self) -> str:
        return self.log.read_text()[-4000:]


def wait_until(is_so: Callable[[], bool], what: str, job: PipelineProcess | None = None) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while not is_so():
        assert job is None or job.process.poll() is None, job.tail()
        assert time.monotonic() < deadline, f"waited for {what}: {job.tail() if job else ''}"
        time.sleep(0.05)


# --- what must hold ---------------------------------------------------------------------------------------------------


def changes_of(lake: Path) -> list[tuple[Any, ...]]:
    """All rows of the table of changes."""
    names = ["shard", "ts", "seq", "kind", "key", "type", "field", "value", "end"]
    table = DeltaTable(str(lake / "changes")).to_pyarrow_table(columns=names)
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def history_of(url: str) -> list[tuple[Any, ...]]:
    """What the feed has, but for what jobs say of themselves."""
    names = ["shard", "ts", "seq", "kind", "key", "type", "field", "value", "end"]
    rows = read(feed="*", url=url).select(names).to_pylist()
    return sorted((tuple(row.values()) for row in rows if not row["key"].startswith(OWN_KEYS)), key=repr)


def current_of(lake: Path) -> dict[bytes, Any]:
    """The table of what holds, as values of keys."""
    found: dict[bytes, Any] = {}
    for row in DeltaTable(str(lake / "current")).to_pyarrow_table().to_pylist():
        if row["field"] is None:
            assert row["key"] not in found
            found[row["key"]] = row["value"]
        else:
            fields = found.setdefault(row["key"], {})
            assert row["field"] not in fields
            fields[row["field"]] = row["value"]
    return found


def store_of(client: Any) -> dict[bytes, Any]:
    """What the server has."""
    found: dict[bytes, Any] = {}
    for key in client.scan_iter(count=1000):
        if key.startswith(OWN_KEYS):
            continue
        match client.type(key):
            case b"string":
                found[key] = client.get(key)
            case b"hash":
                found[key] = client.hgetall(key)
            case b"set":
                found[key] = dict.fromkeys(client.smembers(key), b"1")
            case b"zset":
                found[key] = {member: b"%g" % score for member, score in client.zrange(key, 0, -1, withscores=True)}
            case _:
                found[key] = None
    return found


def entries_of(lake: Path) -> list[tuple[int, bytes, bytes]]:
    rows = DeltaTable(str(lake / "entries")).to_pyarrow_table(columns=["offset", "tag", "entry"]).to_pylist()
    return sorted((row["offset"], row["tag"], row["entry"]) for row in rows)


def check_all(client: Any, url: str, folder: Path) -> None:
    """The lake and the server have the same, and each change is there once."""
    lake = folder / "lake"
    changes = changes_of(lake)
    assert len({row[:3] for row in changes}) == len(changes), "a change is there twice"
    assert changes == history_of(url)
    assert current_of(lake) == store_of(client)
    found = client.execute_command("TREAD", "log", 1, 10_000_000)
    assert entries_of(lake) == [(offset, tag, entry) for offset, tag, entry in found]
