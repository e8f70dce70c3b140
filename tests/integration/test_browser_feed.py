"""GET /feed in a real browser: an EventSource that nobody helps comes back by itself, and misses nothing.

The page is one of the server's own, so that both are of one origin. All that it has is the browser's EventSource, which
sends the id of the last checkpoint back when it connects again.
"""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Page

from tests.integration.browser import MS_MAX, needs_browser
from tests.integration.held_server import held
from tests.integration.server_process import ServerProcess

LISTEN: Final = """(query) => {
    const seen = window.seen = {state: {}, counted: [], lost: 0, steady: 0, id: "", answers: []};
    const source = window.source = new EventSource("/feed?" + query);
    source.addEventListener("value", (event) => {
        const {key, type, field, value} = JSON.parse(event.data);
        if (type === "none") delete seen.state[key];
        else if (type === "string") seen.state[key] = value;
        else if (value === null) {
            delete seen.state[key][field];
            if (!Object.keys(seen.state[key]).length) delete seen.state[key];
        } else (seen.state[key] ??= {})[field] = value;
        if (key === "counter" && type === "string") seen.counted.push(Number(value));
    });
    source.addEventListener("deleterange", () => { seen.state = {}; });
    source.addEventListener("steady", () => seen.steady++);
    source.addEventListener("checkpoint", (event) => { seen.id = event.lastEventId; });
    source.onerror = (event) => {
        seen.lost++;
        if (event.data) seen.answers.push(JSON.parse(event.data));
    };
}"""

pytestmark = needs_browser


def listen(page: Page, server: ServerProcess, query: str) -> None:
    answer = page.goto(f"http://127.0.0.1:{server.http_port}/health")
    assert answer is not None
    assert answer.ok
    page.evaluate(LISTEN, query)
    page.wait_for_function("seen.steady === 1 && seen.id !== ''")


def write(server: ServerProcess, numbers: range) -> None:
    store: Any = server.client()
    for number in numbers:
        store.set("counter", number)
        store.hset(f"h{number % 7}", f"f{number % 3}", number)
        if number % 10 == 9:
            store.delete(f"h{number % 5}")
        if number % 100 == 50:
            store.flushdb()
    store.close()


def state_of(server: ServerProcess) -> dict[str, Any]:
    store: Any = server.client(decode_responses=True)
    found = {key: store.hgetall(key) if key.startswith("h") else store.get(key) for key in store.scan_iter(count=1000)}
    store.close()
    return found


def test_a_browser_comes_back_by_itself_and_misses_nothing(tmp_path: Path, page: Page) -> None:
    data, kills, count = tmp_path / "data", 2, 150
    server = ServerProcess(data, has_http=True)
    try:
        listen(page, server, "initial=1&checkpoint=20")
        for kill in range(kills):
            write(server, range(2 * kill * count, (2 * kill + 1) * count))
            server.kill()  # with what the browser has not read yet
            server.close()
            page.wait_for_function("seen.lost > 0")
            server = ServerProcess(data, has_http=True, instead_of=server)
            write(server, range((2 * kill + 1) * count, (2 * kill + 2) * count))  # before it is back, and while
            page.wait_for_function(
                f"seen.counted.at(-1) === {2 * (kill + 1) * count - 1} && seen.steady === {kill + 2}"
            )
        wanted = state_of(server)
        deadline = time.monotonic() + MS_MAX / 1000
        while (state := page.evaluate("seen.state")) != wanted and time.monotonic() < deadline:
            time.sleep(0.05)
        assert state == wanted
        # Every value that a key ever had, in order; what came after a checkpoint may come again.
        counted: list[int] = page.evaluate("seen.counted")
        assert sorted(set(counted)) == list(range(2 * kills * count))
        assert all(after <= before + 1 for before, after in pairwise(counted))
        assert {each["error"] for each in page.evaluate("seen.answers")} <= {"LOADING"}
    finally:
        server.close()


def test_a_browser_comes_back_until_the_data_is_there(tmp_path: Path, page: Page) -> None:
    with held(tmp_path / "data", http=True) as server:
        page.goto(f"http://127.0.0.1:{server.http_port}/health")
        page.evaluate(LISTEN, "initial=1&checkpoint=20")
        page.wait_for_function("seen.answers.length > 0")
        assert page.evaluate("seen.answers[0].error") == "LOADING"
        server.let_go()
        server.client().set("counter", 1)
        page.wait_for_function("seen.counted.at(-1) === 1")


def test_a_browser_is_told_that_history_is_lost(tmp_path: Path, page: Page) -> None:
    """A status that it does not try again: the page has to begin anew, and can know."""
    server = ServerProcess(tmp_path / "data", has_http=True)
    try:
        listen(page, server, "checkpoint=20")
        server.kill()
        server.close()
        server = ServerProcess(tmp_path / "another", has_http=True, instead_of=server)
        page.wait_for_function("source.readyState === EventSource.CLOSED")
        page.evaluate(LISTEN, "initial=1&checkpoint=20")
        write(server, range(20))
        page.wait_for_function("seen.counted.at(-1) === 19")
    finally:
        server.close()
