"""Options of the test run."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from tests.integration.s3_server import s3_bucket, s3_server

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

__all__ = ["s3_bucket", "s3_server"]

PACKAGE = Path(__file__).parent.parent / "src" / "tidelog"
SPARK = "tests/spark/"

# How long something takes is for benchmarks: a machine may be busy with anything.
settings.register_profile("tidelog", deadline=None)
settings.load_profile("tidelog")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="also run what takes more than a moment")
    parser.addoption("--crash-points", type=int, default=4_000, help="how many simulated crashes to try")
    parser.addoption("--fuzz-inputs", type=int, default=50_000, help="how many broken requests to try")
    parser.addoption("--kills", type=int, default=10, help="how often to kill a server that is under load")
    parser.addoption("--failovers", type=int, default=10, help="how often to harm servers that Sentinels watch")
    parser.addoption("--against", choices=("tidelog", "redis"), default="tidelog", help="the server behind libraries")
    parser.addoption("--library-results", default="", help="append the outcomes of tests/libraries to this file")
    parser.addoption("--seed", type=int, default=None, help="run the simulations with this seed only")


def pytest_configure() -> None:
    # A shell that runs us in the background has Ctrl-C ignored, and so would all that the tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # A session would start a process that outlives the tests; those that are about archives turn it on again.
    os.environ.setdefault("TIDELOG_SPARK_ARCHIVE", "no")
    refuse_stale_modules()


def refuse_stale_modules() -> None:
    """Refuse to test what is not what the sources say."""
    if os.environ.get("TIDELOG_COMPILE") == "no":
        return  # sources are tested
    for compiled in PACKAGE.rglob("*.so"):
        source = compiled.with_name(compiled.name.partition(".")[0] + ".py")
        if not source.exists() or source.stat().st_mtime > compiled.stat().st_mtime:
            raise pytest.UsageError(f"{source} was changed after it was compiled: run bin/build, or bin/build --clean")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--long"):
        return
    deselected = [item for item in items if "long" in item.keywords]
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = [item for item in items if "long" not in item.keywords]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    """Give all that needs Spark to one process, for one session; whatever else to whoever is free."""
    from xdist.scheduler import LoadScopeScheduling

    class OneSession(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return SPARK if nodeid.startswith(SPARK) else nodeid

        def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
            """Forget what is done: all that a process ever had is counted after each test."""
            scope = self._split_scope(self.registered_collections[node][item_index])
            super().mark_test_complete(node, item_index, duration)
            if all(self.assigned_work[node][scope].values()):
                del self.assigned_work[node][scope]

    return OneSession(config, log) if config.getvalue("dist") == "load" else None
