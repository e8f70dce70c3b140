"""A thread that fsyncs, so that whoever writes the journal need not wait for the disk.

    owner's thread                         this thread
    job = writer.begin_sync(...)
    sync_thread.start(job)          ->     job.run()
    ... goes on appending ...
    done = sync_thread.poll()       <-     the job, and the error that it ended with
    writer.finish_sync(*done)

One job after the other, in the order they were started; results come back in that order, and only when the owner asks,
so nothing of the owner's is ever touched from here. An error that is no `OSError` is a bug, and is raised where the
owner asks.
"""

from __future__ import annotations

import queue
import threading
from typing import Generic, NamedTuple, Protocol, TypeVar


class Job(Protocol):
    """Something to do on another thread, such as `SyncJob`."""

    def run(self) -> None: ...


AnyJob = TypeVar("AnyJob", bound=Job)


class Finished(NamedTuple, Generic[AnyJob]):
    """A job that has run."""

    job: AnyJob
    error: OSError | None


class SyncThread(Generic[AnyJob]):
    """Runs jobs on a thread of its own. All methods are for the owner's thread."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[AnyJob | None] = queue.SimpleQueue()
        self._finished: queue.SimpleQueue[tuple[AnyJob, Exception | None]] = queue.SimpleQueue()
        self._count = 0
        # A daemon: an owner that dies of an error must not hang on its disk. One that stops in order calls `close`.
        self._thread = threading.Thread(target=self._run, name="tidelog-sync", daemon=True)
        self._thread.start()

    @property
    def jobs_under_way(self) -> int:
        """Started, and their results not taken yet."""
        return self._count

    def start(self, job: AnyJob) -> None:
        self._count += 1
        self._jobs.put(job)

    def poll(self) -> Finished[AnyJob] | None:
        """The next result, if it is there."""
        return self.wait(0)

    def wait(self, timeout_s: float | None = None) -> Finished[AnyJob] | None:
        """The next result; None if there is none to come, or not within the time."""
        if not self._count:
            return None
        try:
            # SimpleQueue takes a time-out of 0 for "do not block".
            job, error = self._finished.get(timeout=timeout_s)
        except queue.Empty:
            return None
        self._count -= 1
        if error is not None and not isinstance(error, OSError):
            raise error
        return Finished(job, error)

    def close(self) -> None:
        """Finish what was started, and end. Results can still be taken. Closing twice is fine."""
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job.run()
            except Exception as error:
                self._finished.put((job, error))
            else:
                self._finished.put((job, None))
