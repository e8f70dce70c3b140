"""Flask-Limiter: pages of a site that are limited, in one process and in several."""

from __future__ import annotations

import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest
from flask import Flask

from benchmarks.peers import free_ports
from tests.libraries.backing_server import BackingServer, url_of
from tests.libraries.limited_site import close_site, make_site
from tests.libraries.worker_process import Workers, wait_until

pytestmark = pytest.mark.library("flask-limiter", "limits")
PROMISE: Final = "No more requests than the limit get through in a window, however many processes serve a site."


def visit(site: Flask, path: str = "/limited") -> int:
    return site.test_client().get(path).status_code


@pytest.mark.parametrize("strategy", ["fixed-window", "moving-window", "sliding-window-counter"])
def test_limited_page(server: BackingServer, strategy: str) -> None:
    """Two sites share the limit of a page with each strategy, and exactly as many requests get through as it says."""
    sites = [make_site(url_of(server), "30 per hour", strategy) for _ in range(2)]
    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(lambda number: visit(sites[number % 2]), range(50)))
    assert sorted(statuses) == 30 * [200] + 20 * [429]
    response = sites[0].test_client().get("/limited")
    assert response.headers["X-RateLimit-Remaining"] == "0"
    assert response.headers["X-RateLimit-Limit"] == "30"
    assert visit(sites[0], "/free") == 200
    for site in sites:
        close_site(site)


def fetch(port: int) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/limited", timeout=60) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/free", timeout=60) as response:
            return bool(response.status == 200)
    except OSError:
        return False


@pytest.mark.long
def test_site_of_processes(server: BackingServer, workers: Workers) -> None:
    """A site of two processes keeps to its limit when one of them and then the server are killed."""
    ports = free_ports(2)
    first, _ = [workers.start("-m", "tests.libraries.limited_site", str(port)) for port in ports]
    wait_until(lambda: all(map(answers, ports)), "both processes serve")
    statuses: list[int] = []

    def visit_all(count: int) -> None:
        with ThreadPoolExecutor(8) as pool:
            statuses.extend(pool.map(lambda number: fetch(ports[number % 2]), range(count)))

    visit_all(200)
    first.kill()
    workers.start("-m", "tests.libraries.limited_site", str(ports[0]))
    wait_until(lambda: all(map(answers, ports)), "both processes serve again")
    visit_all(200)
    server.kill()
    server.start_again()
    visit_all(200)
    assert statuses.count(200) == 500
    assert statuses.count(429) == 100
