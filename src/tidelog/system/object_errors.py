"""What `obstore` raises, as the errors that `ports.ObjectStore` promises, without anything secret.

`obstore` has a few classes of errors, and puts the rest into words: the request with its URL, the answer of the
server, and the chain of causes in the form of a debugger. A URL may carry a password or a signature, and an answer may
repeat what was sent. So nothing of that is passed on as it is: status, code and message of the answer are picked
out, what is known to be secret is struck out, and the original error is not chained to ours.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping, Sequence
from typing import Final

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from tidelog import limits

STORE_ERRORS: Final = (BaseError, OSError, ValueError)
"""What calls of `obstore` raise."""

_DEBUGGER: Final = "\n\nDebug source:"
_STATUS: Final = re.compile(r"status code: (\d{3}[^:\n]*)")
_CODE: Final = re.compile(r"<Code>([^<]*)</Code>")
_MESSAGE: Final = re.compile(r"<Message>([^<]*)</Message>")
_CAUSE: Final = re.compile(r'(?:message|error): "((?:[^"\\]|\\.)*)"')
_NO_STORE: Final = ("NoSuchBucket", "ContainerNotFound")
_TRY_AGAIN: Final = ("ConditionalRequestConflict", "OperationAborted")
"""Answers 409 of S3 when something else happens to the name right now. They do not say that it is taken, but `obstore`
does."""
_USER: Final = re.compile(r"//[^/@\s]*@")
_QUERY: Final = re.compile(r"(https?://[^\s?]*)\?\S*")
_SECRET_NAME: Final = re.compile(r"SECRET|PASSWORD|TOKEN|SAS|ACCOUNT_KEY|ACCESS_KEY$", re.IGNORECASE)
_SECRET_CHARACTERS_MIN: Final = 4
"""Shorter ones would strike out parts of words."""


def secrets_among(settings: Mapping[str, str]) -> tuple[str, ...]:
    """The values of settings, or of the environment, that must not be shown; the longest first."""
    found = {value for name, value in settings.items() if _SECRET_NAME.search(name)}
    return tuple(sorted((value for value in found if len(value) >= _SECRET_CHARACTERS_MIN), key=len, reverse=True))


def without_secrets(text: str, secrets: Sequence[str] = ()) -> str:
    """The text without users and passwords of URLs, queries of URLs, and these secrets."""
    for secret in secrets:
        text = text.replace(secret, "…")
    return _QUERY.sub(r"\1", _USER.sub("//", text))


def is_past_end(error: BaseException) -> bool:
    """Whether a range was asked for that begins at the end of an object, or after it."""
    return _status(str(error)).startswith("416")


def store_error(error: BaseException, place: str, secrets: Sequence[str]) -> OSError:
    """The error to raise instead, `from None`. The place is the URL of the store and the name of the object."""
    text = str(error)
    reason = without_secrets(_reason(text), secrets)[: limits.OBJECT_ERROR_CHARACTERS_MAX]
    # OSError itself picks the subclass by the number.
    return OSError(_number(error, text), reason, without_secrets(place, secrets))


def _number(error: BaseException, text: str) -> int:
    if any(f"<Code>{code}<" in text for code in (*_NO_STORE, *_TRY_AGAIN)):
        return errno.EIO
    if isinstance(error, FileNotFoundError):
        return errno.ENOENT
    if isinstance(error, AlreadyExistsError | PreconditionError):
        return errno.EEXIST
    if isinstance(error, PermissionDeniedError | UnauthenticatedError | PermissionError):
        return errno.EACCES
    status = _status(text)
    if status.startswith(("401", "403")):
        return errno.EACCES
    if "kind: Timeout" in text or "TimedOut" in text or status.startswith("408"):
        return errno.ETIMEDOUT
    return errno.EIO


def _status(text: str) -> str:
    found = _STATUS.search(text.partition(_DEBUGGER)[0])
    return found[1].strip() if found else ""


def _reason(text: str) -> str:
    """A few plain words."""
    words, _, causes = text.partition(_DEBUGGER)
    if "/latest/api/token" in words or "/latest/meta-data" in words:
        return "there are no credentials in the environment, and this machine has no role that gives some"
    status = _status(text)
    code, message = _CODE.search(words), _MESSAGE.search(words)
    if code:
        return f"{code[1]}: {message[1]}" if message else f"{code[1]} ({status})"
    if status:
        return f"the store answered {status}"
    if "BadScheme" in causes:
        return "the endpoint has http:// and no TLS, which must be allowed, for S3 by AWS_ALLOW_HTTP=true"
    if "kind: Timeout" in causes or "TimedOut" in causes:
        return "the store did not answer in time"
    if found := _CAUSE.findall(causes):
        return f"the store cannot be reached: {found[-1]}"
    if "HTTP error" in words:
        return "the connection to the store broke"
    return words.partition("\n")[0]
