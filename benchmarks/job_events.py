"""Events of a job set as a batch scheduler tells them: JSON, some hundred bytes each, several for every job.

Some hundred jobs are under way at a time, and each event tells the next step of one of them. What is random is what is
random there: ids of jobs, pods and machines, times, and how much a job used. One seed gives the same events.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

UNDER_WAY = 500
STEPS = ("submitted", "queued", "leased", "pending", "running", "utilisation", "succeeded")
FAILS_ONE_OF = 20


class _Job:
    def __init__(self, draw: random.Random, number: int) -> None:
        self.id = f"01hx{number:09x}{draw.getrandbits(52):013x}"
        self.pod = "-".join(f"{draw.getrandbits(4 * digits):0{digits}x}" for digits in (8, 4, 4, 4, 12))
        self.cluster = draw.randrange(8)
        self.node = draw.randrange(400)
        self.step = 0
        self.fails = draw.randrange(FAILS_ONE_OF) == 0


def job_events(count: int, seed: int = 1) -> Iterator[bytes]:
    """So many events, in order."""
    draw = random.Random(seed)
    jobs = [_Job(draw, number) for number in range(UNDER_WAY)]
    made = UNDER_WAY
    for number in range(count):
        place = draw.randrange(UNDER_WAY)
        job = jobs[place]
        yield json.dumps(_event(draw, job, number)).encode()
        job.step += 1
        if job.step == len(STEPS):
            jobs[place] = _Job(draw, made)
            made += 1


def _event(draw: random.Random, job: _Job, number: int) -> dict[str, Any]:
    step = STEPS[job.step]
    if step == "succeeded" and job.fails:
        step = "failed"
    minutes, millis = divmod(number * 97 + draw.randrange(97), 60_000)
    event: dict[str, Any] = {
        "job_id": job.id,
        "job_set_id": "nightly-reports",
        "queue": "reports",
        "created": f"2024-05-01T{minutes // 60 % 24:02d}:{minutes % 60:02d}:{millis / 1000:06.3f}Z",
        "event": step,
    }
    if step == "submitted":
        limits = {"cpu": "2", "memory": "4Gi", "ephemeral-storage": "8Gi"}
        event["job"] = {
            "priority": 1000,
            "namespace": "reports",
            "labels": {"team": "reports", "tier": "batch"},
            "container": {"image": "registry.internal/reports/nightly:2024.18", "args": ["--part", str(number)]},
            "resources": {"limits": limits, "requests": limits},
        }
    elif job.step >= STEPS.index("leased"):
        event["cluster_id"] = f"cluster-{job.cluster:02d}"
        if job.step >= STEPS.index("pending"):
            event |= {
                "kubernetes_id": job.pod,
                "node_name": f"node-{job.node:04d}.cluster-{job.cluster:02d}.internal",
                "pod_name": f"job-{job.id}-0",
                "pod_namespace": "reports",
                "pod_number": 0,
            }
    if step == "utilisation":
        event["max_resources_for_period"] = {
            "cpu": f"{draw.randrange(2000)}m",
            "memory": f"{draw.randrange(4 << 20)}Ki",
        }
    elif step == "failed":
        event |= {"reason": "OOMKilled", "exit_codes": {"main": 137}}
    return event
