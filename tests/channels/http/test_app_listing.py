"""The list of channels over HTTP, while channels come and go."""

from __future__ import annotations

import re
import threading
from itertools import count

from tests.channels.http.gateways import HttpSite, polling

STABLE = 1200


def test_what_is_there_all_the_while_is_on_some_page(site: HttpSite) -> None:
    for number in range(STABLE):
        site.subscribe(f"stable-{number}", "me")
    is_over = threading.Event()
    problems: list[BaseException] = []

    def come_and_go() -> None:
        mine = HttpSite(site.port)
        try:
            for number in count():
                if is_over.is_set():
                    return
                mine.subscribe(f"passing-{number}", "me")
                mine.publish(f"passing-{number}", "m", number)
                if number >= 50:
                    assert mine("DELETE", polling(f"passing-{number - 50}", "me")).status == 200
        except BaseException as problem:
            problems.append(problem)

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        for _ in range(3):
            found, pages = read_all(site)
            assert {name for name in found if name.startswith("stable-")} == {f"stable-{n}" for n in range(STABLE)}
            assert all(found[f"stable-{number}"] == {"me": 0} for number in range(STABLE))
            assert all(re.fullmatch("(stable|passing)-[0-9]+", name) for name in found)
            assert all(rows in ({}, {"me": 0}, {"me": 1}) for rows in found.values())
            assert pages > 1
    finally:
        is_over.set()
        thread.join()
    assert not problems


def read_all(site: HttpSite) -> tuple[dict[str, dict[str, int]], int]:
    """Lags by channel and subscriber, merged from all pages, and how many pages there were."""
    found: dict[str, dict[str, int]] = {}
    query = ""
    for pages in count(1):
        page = site("GET", f"/channel{query}").value
        for each in page["channels"]:
            rows = {row["subscriberID"]: row["lag"] for row in each["subscribers"]}
            found.setdefault(each["channelID"], {}).update(rows)
        if "cursor" not in page:
            return found, pages
        query = f"?cursor={page['cursor']}"
    raise AssertionError
