"""The reference for people says what the description for programs says: calls, parameters, statuses and codes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from tests.channels.http.gateways import HttpSite
from tidelog.channels.http.answer import ERROR_CODES
from tidelog.channels.http.openapi import describe
from tidelog.channels.webhooks.counters import WebhookCounters
from tidelog.gateway.channels import channel_samples

DOCS: Final = Path(__file__).resolve().parents[3] / "docs"
REFERENCE: Final = (DOCS / "channels-api.md").read_text()
GUIDE: Final = (DOCS / "channels.md").read_text()
CALL: Final = re.compile(r"^### `([A-Z]+) (/\S*)`$(.*?)(?=^##)", re.MULTILINE | re.DOTALL)
PARAMETER: Final = re.compile(r"^\| `([\w-]+)` \| (query|header) \| (required)?", re.MULTILINE)
STATUS: Final = re.compile(r"\b(20[04]|503)(?=[:,])")
ERRORS: Final = re.compile(r"^Errors: ([\d, ]+)$", re.MULTILINE)
CODE: Final = re.compile(r"^\| `((?:dsps|tidelog)\.[\w.-]+)` \| ([\d, ]+) \|", re.MULTILINE)
EXCERPT: Final = re.compile(r"^```\n(  async function follow.*?)^```$", re.MULTILINE | re.DOTALL)
METRIC: Final = re.compile(r"`(tidelog_(?:channels|webhook)_\w+)")


def described() -> dict[tuple[str, str], dict[str, Any]]:
    """By method and path."""
    return {
        (method.upper(), path): operation
        for path, methods in describe()["paths"].items()
        for method, operation in methods.items()
    }


def written() -> dict[tuple[str, str], str]:
    return {(method, path): text for method, path, text in CALL.findall(REFERENCE)}


def test_the_reference_has_every_call() -> None:
    assert sorted(written()) == sorted(described())


def test_the_reference_has_the_parameters_of_each_call() -> None:
    for call, operation in described().items():
        wanted = [
            (each["name"], each["in"], each["required"]) for each in operation["parameters"] if each["in"] != "path"
        ]
        found = [(name, place, bool(needed)) for name, place, needed in PARAMETER.findall(written()[call])]
        assert found == wanted, call


def test_the_reference_has_the_statuses_of_each_call() -> None:
    for call, operation in described().items():
        text = written()[call]
        if call[1].startswith("/channels"):
            continue  # the description itself, which always comes
        errors = ERRORS.findall(text)
        found = {int(status) for line in errors for status in line.split(", ")}
        found |= {int(status) for status in STATUS.findall(ERRORS.sub("", text))}
        assert found == {int(status) for status in operation["responses"]}, call


def test_the_reference_has_every_error_code() -> None:
    found = {code: tuple(map(int, statuses.split(", "))) for code, statuses in CODE.findall(REFERENCE)}
    assert found == ERROR_CODES
    listed = describe()["components"]["schemas"]["Error"]["properties"]["code"]["enum"]
    assert listed == list(found)


def test_the_guide_has_every_metric(site: HttpSite) -> None:
    site("GET", "/probe/liveness")
    shown = re.findall(r"^# TYPE (tidelog_channels_\w+)", site("GET", "/metrics").body.decode(), re.MULTILINE)
    counters = WebhookCounters()
    counters.of("archive")
    sent = {sample.name for sample in channel_samples(None, counters)}
    assert sorted(set(METRIC.findall(GUIDE))) == sorted({*shown, *sent})


def test_the_guide_shows_the_example_as_it_is() -> None:
    [excerpt] = EXCERPT.findall(GUIDE)
    assert excerpt in (DOCS / "examples" / "channels.html").read_text()
