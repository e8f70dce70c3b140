"""Steps on disk: in order, one at a time, and none that nobody wants any more."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tidelog.errors import EnvironmentFault, JournalFull
from tidelog.replication.disk_queue import DiskQueue


class ManualWorker:
    """A thread whose work is done when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], None], Callable[[], None]]] = []

    def submit(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        self.waiting.append((work, done))

    def work(self) -> None:
        self.waiting[0][0]()

    def tell(self) -> None:
        self.waiting.pop(0)[1]()

    def run_all(self) -> None:
        while self.waiting:
            self.work()
            self.tell()


class Scene:
    """A queue, and what happens."""

    def __init__(self) -> None:
        self.worker = ManualWorker()
        self.happened: list[str] = []
        self.errors: list[OSError | EnvironmentFault] = []
        self.queue = DiskQueue(self.worker, lambda: self.happened.append("end"), self.errors.append)

    def add(self, name: str, size: int = 0) -> None:
        self.queue.add(lambda: self.happened.append(name), lambda: self.happened.append(f"{name} done"), size)

    def add_failing(self, error: Exception) -> None:
        def fail() -> None:
            raise error

        self.queue.add(fail, lambda: self.happened.append("never"))


def test_steps_are_done_in_order_and_then_the_loop_is_told() -> None:
    scene = Scene()
    scene.add("a")
    scene.add("b")
    assert not scene.worker.waiting
    scene.queue.go()
    scene.add("c")
    scene.queue.go()
    assert len(scene.worker.waiting) == 1, "one lot at a time"
    scene.worker.run_all()
    assert scene.happened == ["a", "b", "a done", "b done", "end", "c", "c done", "end"]


def test_what_waits_is_counted() -> None:
    scene = Scene()
    scene.add("a", 5)
    scene.queue.go()
    scene.add("b", 7)
    assert scene.queue.waiting_bytes == 12
    scene.worker.work()
    scene.worker.tell()
    assert scene.queue.waiting_bytes == 7
    scene.queue.drop()
    scene.worker.run_all()
    assert scene.queue.waiting_bytes == 0


def test_what_was_dropped_is_not_told_and_ends_before_what_comes_next() -> None:
    scene = Scene()
    scene.add("a")
    scene.queue.go()
    scene.add("b")
    scene.worker.work()
    scene.queue.drop()
    scene.add("c")
    scene.queue.go()
    assert len(scene.worker.waiting) == 1
    scene.worker.tell()
    scene.worker.run_all()
    assert scene.happened == ["a", "c", "c done", "end"]


def test_a_lot_that_is_dropped_before_it_begins_does_nothing() -> None:
    scene = Scene()
    scene.add("a")
    scene.queue.go()
    scene.queue.drop()
    scene.worker.run_all()
    assert scene.happened == []


def test_what_is_done_may_drop_the_rest() -> None:
    scene = Scene()
    scene.queue.add(lambda: scene.happened.append("a"), scene.queue.drop)
    scene.add("b")
    scene.queue.go()
    scene.worker.run_all()
    assert scene.happened == ["a", "b"]


@pytest.mark.parametrize("error", [OSError(28, "no space"), JournalFull("no space")])
def test_a_step_that_fails_ends_everything(error: OSError | EnvironmentFault) -> None:
    scene = Scene()
    scene.add("a")
    scene.add_failing(error)
    scene.add("b")
    scene.queue.go()
    scene.add("c")
    scene.worker.run_all()
    assert scene.happened == ["a", "a done"]
    assert scene.errors == [error]
    scene.add("d")
    scene.queue.go()
    scene.worker.run_all()
    assert scene.happened == ["a", "a done", "d", "d done", "end"]


def test_a_mistake_of_ours_is_not_kept_quiet() -> None:
    scene = Scene()
    scene.add_failing(ZeroDivisionError())
    scene.queue.go()
    with pytest.raises(ZeroDivisionError):
        scene.worker.work()
