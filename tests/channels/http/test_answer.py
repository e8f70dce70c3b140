"""Which answer an error becomes; what the backend says stays inside."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import tidelog
from tidelog.channels.http.answer import ERROR_CODES, TooManyPolls, answer_to
from tidelog.errors import (
    AckHandleMalformed,
    BadChannelInput,
    ChannelError,
    ChannelTokenMissing,
    ChannelTokenRefused,
    FormatError,
    InternalError,
    InvalidChannel,
    LimitExceeded,
    MessageTooLarge,
    NotConfirmed,
    ServerRefused,
    ServerUnreachable,
    SubscriptionNotFound,
    TidelogError,
)


class ExpiredToken(ChannelTokenMissing):
    """A kind of its own, as a policy may have."""


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (InvalidChannel("x"), 403, "dsps.storage.invalid-channel"),
        (SubscriptionNotFound("x"), 404, "dsps.storage.subscription-not-found"),
        (AckHandleMalformed("x"), 400, "dsps.storage.ack-handle-malformed"),
        (BadChannelInput("x"), 400, "tidelog.channels.invalid-input"),
        (ChannelError("x"), 400, "tidelog.channels.refused"),
        (ChannelTokenMissing("x"), 401, "dsps.auth.rejected"),
        (ExpiredToken("x"), 401, "dsps.auth.rejected"),
        (ChannelTokenRefused("x"), 403, "dsps.auth.rejected"),
        (TooManyPolls("x"), 429, "tidelog.channels.too-many-polls"),
        (MessageTooLarge("x"), 413, "tidelog.channels.too-large"),
        (LimitExceeded("x"), 400, "tidelog.channels.limit-exceeded"),
        (NotConfirmed("x", wanted=1, confirmed=0), 503, "tidelog.channels.not-confirmed"),
    ],
)
def test_errors_that_are_told(error: TidelogError, status: int, code: str) -> None:
    answer = answer_to(error)
    assert (answer.status, json.loads(answer.body)) == (status, {"error": "x", "code": code})
    assert status in ERROR_CODES.get(code, ()) or type(error) is ChannelError
    assert ((b"www-authenticate", b"Bearer") in answer.headers) == (status == 401)
    assert ((b"retry-after", b"1") in answer.headers) == (status in (429, 503))


@pytest.mark.parametrize("kind", [ServerUnreachable, ServerRefused, FormatError])
def test_errors_of_the_backend_are_told_in_general_words(kind: type[TidelogError]) -> None:
    answer = answer_to(kind("redis://10.0.0.7:6379 says something"))
    assert (answer.status, b"10.0.0.7" in answer.body) == (503, False)


def test_a_bug_of_ours_tells_nothing() -> None:
    answer = answer_to(InternalError("a secret place"))
    assert (answer.status, b"secret" in answer.body) == (500, False)


def test_the_table_has_every_code() -> None:
    """Codes are written where they are used. Nothing raises a bare `ChannelError`, so its code is never seen."""
    sources = Path(tidelog.__file__).parent
    used = {
        code
        for path in [sources / "errors.py", *(sources / "channels").rglob("*.py"), *(sources / "gateway").glob("*.py")]
        for line in path.read_text().splitlines()
        if "getLogger" not in line
        for code in re.findall(r'"((?:dsps|tidelog\.channels)\.[a-z.-]+)"', line)
    }
    assert used == {*ERROR_CODES, ChannelError.code}
