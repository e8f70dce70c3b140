"""The example of a page that uses a channel, in a real browser: it shows every message, in order, whatever happens.

The page comes from a web server of its own, as a site's pages do. So it is of another origin than the channels, and the
browser asks before each kind of request whether it may (CORS).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

import pytest

from tests.channels.http.gateways import SECONDS_MAX, GatewayProcess, HttpSite, polling
from tests.integration.browser import needs_browser
from tests.integration.limited_server import COMMAND as LIMITED
from tests.integration.server_process import ServerProcess

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

EXAMPLES: Final = Path(__file__).resolve().parents[2] / "docs" / "examples"
LEDGER: Final = "ledger"
"""A subscriber of the test's own, which sees what the page publishes."""
SHORT_POLLS: Final = """
    const fetchAsItIs = window.fetch
    window.fetch = (url, options) => fetchAsItIs(url.replace("timeout=30s", "timeout=300ms"), options)
"""
LISTEN: Final = """async (me) => {
    window.seen = []
    const show = (message) => window.seen.push(message.content)
    await fetch(me, { method: "PUT" })
    const source = new EventSource(me)
    source.onmessage = (event) => show(JSON.parse(event.data))
    window.told = []
    source.addEventListener("error", (event) => event.data && window.told.push(JSON.parse(event.data).code))
}"""
"""As the guide has it, with a note of what errors are told."""
WAITING: Final = "tidelog_channels_polls_waiting"

pytestmark = needs_browser


class _QuietFiles(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def origin() -> Iterator[str]:
    """A site that has the example."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_QuietFiles, directory=str(EXAMPLES))) as files:
        serving = threading.Thread(target=files.serve_forever)
        serving.start()
        yield f"http://127.0.0.1:{files.server_address[1]}"
        files.shutdown()
        serving.join()


def open_example(page: Page, origin: str, server: ServerProcess, channel: str) -> None:
    query = urlencode({"server": f"http://127.0.0.1:{server.http_port}", "channel": channel})
    page.goto(f"{origin}/channels.html?{query}")


def publish_by_form(page: Page, text: str) -> None:
    page.get_by_label("Message").fill(text)
    page.get_by_role("button", name="Publish").click()


def wait_for_text(page: Page, text: str) -> None:
    page.get_by_role("listitem").filter(has_text=text).wait_for()


def texts_on(page: Page) -> list[str]:
    return page.get_by_role("listitem").all_inner_texts()


def texts_published(site: HttpSite, channel: str) -> list[str]:
    """All messages of a channel, each as often as it is there."""
    return [each["content"]["text"] for each in site.fetch(channel, LEDGER, max=1000)["messages"]]


def test_a_page_of_another_origin_shows_all_messages_over_a_kill_of_the_server(
    tmp_path: Path, page: Page, origin: str
) -> None:
    options = ["--fsync", "always", "--channel-origins", origin]
    server = ServerProcess(tmp_path / "data", *options, has_http=True)
    try:
        site = HttpSite(server.http_port)
        site.subscribe("news", LEDGER)
        open_example(page, origin, server, "news")
        site.wait_for(WAITING, 1)
        site.publish("news", "state", {"text": "<b>from</b> outside"})  # an id that the page has as its own, too
        site.publish("news", "any", [1, "JSON"])
        wait_for_text(page, '[1,"JSON"]')
        publish_by_form(page, "from the page")
        wait_for_text(page, "from the page")

        site.close()
        server.kill()
        server.close()
        publish_by_form(page, "while it was away")
        publish_by_form(page, "and another")
        page.get_by_text("The server does not answer").wait_for()
        server = ServerProcess(tmp_path / "data", *options, has_http=True, instead_of=server)
        site = HttpSite(server.http_port)
        wait_for_text(page, "and another")
        site.publish("news", "last", {"text": "after it came back"})
        wait_for_text(page, "after it came back")
        assert page.get_by_role("status").inner_text() == ""

        wanted = ["<b>from</b> outside", '[1,"JSON"]', "from the page", "while it was away", "and another"]
        wanted.append("after it came back")
        assert texts_on(page) == wanted
        assert len(site.fetch("news", LEDGER)["messages"]) == len(wanted)

        page.reload()
        site.wait_for(WAITING, 1)
        site.publish("news", "reloaded", {"text": "after a reload"})
        wait_for_text(page, "after a reload")
        assert texts_on(page) == ["after a reload"]  # what it acknowledged does not come again ...
        [channel] = site("GET", "/channel").value["channels"]
        assert len(channel["subscribers"]) == 2  # ... because it is the same subscriber
    finally:
        server.close()


def test_the_page_repeats_what_was_not_answered_and_shows_it_once(tmp_path: Path, page: Page, origin: str) -> None:
    lost: list[str] = []

    def lose_once(route: Route) -> None:
        """The answer to a publish, which the server has then done, and a whole acknowledgement."""
        method = route.request.method
        if method in lost or method not in ("PUT", "DELETE"):
            route.continue_()
            return
        lost.append(method)
        if method == "PUT":
            assert route.fetch().ok
        route.abort()

    with ServerProcess(tmp_path / "data", "--channel-origins", origin, has_http=True) as server:
        site = HttpSite(server.http_port)
        site.subscribe("news", LEDGER)
        open_example(page, origin, server, "news")
        site.wait_for(WAITING, 1)
        page.route("**/message?**", lose_once)
        page.route("**/message/**", lose_once)
        publish_by_form(page, "one")
        publish_by_form(page, "two")
        wait_for_text(page, "two")
        assert texts_on(page) == ["one", "two"]
        assert texts_published(site, "news") == ["one", "two"]
        assert sorted(lost) == ["DELETE", "PUT"]
        assert site.metric("tidelog_channels_repeated_total") == 1


def test_the_page_subscribes_again_when_its_subscriber_is_gone(tmp_path: Path, page: Page, origin: str) -> None:
    with ServerProcess(tmp_path / "data", "--channel-origins", origin, has_http=True) as server:
        site = HttpSite(server.http_port)
        open_example(page, origin, server, "news")
        site.wait_for(WAITING, 1)
        publish_by_form(page, "before")
        wait_for_text(page, "before")
        site.wait_for(WAITING, 1)
        [channel] = site("GET", "/channel").value["channels"]
        [subscriber] = channel["subscribers"]
        assert site("DELETE", polling("news", subscriber["subscriberID"])).status == 200
        site.publish("news", "missed", {"text": "missed"})
        wait_for_text(page, "messages may be missing here")
        site.wait_for(WAITING, 1)
        publish_by_form(page, "after")
        wait_for_text(page, "after")
        assert texts_on(page) == ["before", "… messages may be missing here …", "after"]


def test_the_page_stays_subscribed_to_a_quiet_channel(tmp_path: Path, page: Page, origin: str) -> None:
    options = ["--channel-origins", origin, "--channel-expire", "2s"]
    with ServerProcess(tmp_path / "data", *options, has_http=True) as server:
        site = HttpSite(server.http_port)
        page.add_init_script(SHORT_POLLS)
        open_example(page, origin, server, "news")
        site.wait_for(WAITING, 1)
        publish_by_form(page, "before")
        wait_for_text(page, "before")
        page.wait_for_timeout(4_000)
        publish_by_form(page, "after")
        wait_for_text(page, "after")
        assert texts_on(page) == ["before", "after"]


def test_an_event_source_acknowledges_by_itself_and_misses_nothing(tmp_path: Path, page: Page) -> None:
    limits = {"CHANNEL_STREAM_SILENT_S": 0.1, "CHANNEL_STREAM_UNACKNOWLEDGED_S": 0.3}
    command, options = [*LIMITED, json.dumps(limits), "serve"], ["--fsync", "always"]
    server = ServerProcess(tmp_path / "data", *options, has_http=True, command=command)
    try:
        page.goto(f"http://127.0.0.1:{server.http_port}/health")
        page.evaluate(LISTEN, polling("news", "me"))
        for number in range(2):
            site = HttpSite(server.http_port)
            site.publish("news", f"m{number}", number)
            page.wait_for_function(f"seen.at(-1) === {number}")
            wait_until_acknowledged(site, "news")
            site.close()
            server.kill()
            server.close()
            server = ServerProcess(tmp_path / "data", *options, has_http=True, command=command, instead_of=server)
        assert page.evaluate("seen") == [0, 1]
    finally:
        server.close()


def test_an_event_source_comes_back_while_the_backend_is_away(tmp_path: Path, page: Page) -> None:
    """Every answer but a stream would end it for good; a server that is loading its data answers in the same way."""
    server = ServerProcess(tmp_path / "data", "--fsync", "always")
    try:
        with GatewayProcess(tmp_path, f"redis://127.0.0.1:{server.port}", CHANNEL_ATTEMPTS_MORE=0) as gateway:
            page.goto(f"http://127.0.0.1:{gateway.http_port}/probe/liveness")
            page.evaluate(LISTEN, polling("news", "me"))
            gateway.site().wait_for(WAITING, 1)
            server.kill()
            server.close()
            page.wait_for_function("told.length >= 3")  # within the stream that was open, and in the place of others
            assert set(page.evaluate("told")) == {"tidelog.channels.backend-unavailable"}
            server = ServerProcess(tmp_path / "data", "--fsync", "always", instead_of=server)
            gateway.site().publish("news", "m", 1)
            page.wait_for_function("seen.at(-1) === 1")
    finally:
        server.close()


def wait_until_acknowledged(site: HttpSite, channel: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while [each["lag"] for each in site("GET", "/channel").value["channels"][0]["subscribers"]] != [0]:
        assert time.monotonic() < deadline, f"a subscriber of {channel} does not acknowledge"
        time.sleep(0.05)


def test_a_page_of_an_origin_that_is_not_allowed_can_do_nothing(tmp_path: Path, page: Page, origin: str) -> None:
    with ServerProcess(tmp_path / "data", "--channel-origins", "https://shop.example", has_http=True) as server:
        open_example(page, origin, server, "news")
        publish_by_form(page, "smuggled")
        page.get_by_text("The server does not answer").wait_for()
        assert HttpSite(server.http_port)("GET", "/channel").value["channels"] == []
