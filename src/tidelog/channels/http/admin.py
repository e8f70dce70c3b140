"""Calls for operators, behind a token of their own.

Whoever runs the application compares the token, and slows down those who guess. Without one configured nobody gets in:
there is no open admin call.
"""

from __future__ import annotations

import logging
import re
from typing import Final

from tidelog.channels.http.answer import NO_CONTENT, Answer, error_answer, json_answer
from tidelog.channels.http.call import CallGate, HttpCall
from tidelog.channels.http.request_log import REQUESTS_LOG
from tidelog.channels.policy import ChannelPolicy
from tidelog.errors import BadChannelInput

ADMIN_REJECTED: Final = "dsps.auth.rejected"
"""The code of a refusal."""
_LEVELS: Final = {
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
_CATEGORIES: Final = {"*": "tidelog", "requests": REQUESTS_LOG.name}
_EXP: Final = re.compile(r"[0-9]{1,16}", re.ASCII)
_EXP_MAX: Final = 2**53 - 1
_JTI_LENGTH_MAX: Final = 512


class AdminCalls:
    """The calls, by the names that the table has."""

    def __init__(self, policy: ChannelPolicy, gate: CallGate | None) -> None:
        self._policy = policy
        self._gate = gate

    async def refusal(self, call: HttpCall) -> Answer | None:
        """Why a request may not; None: it may."""
        if self._gate is None:
            return error_answer(403, "no admin token is configured, so nobody may do this", ADMIN_REJECTED)
        return await self._gate(call)

    async def revoke_token(self, call: HttpCall) -> Answer:
        jti, exp = call.needed("jti"), call.needed("exp")
        if len(jti) > _JTI_LENGTH_MAX:
            raise BadChannelInput(f'"jti" has at most {_JTI_LENGTH_MAX} characters')
        if _EXP.fullmatch(exp) is None or int(exp) > _EXP_MAX:
            raise BadChannelInput('"exp" is a unix time in seconds')
        await self._policy.revoke_token(jti, int(exp))
        return json_answer({"jti": jti, "exp": int(exp)})

    async def set_log_level(self, call: HttpCall) -> Answer:
        category, level = call.needed("category"), call.needed("level")
        if category not in _CATEGORIES:
            raise BadChannelInput(f'"category" is one of {", ".join(_CATEGORIES)}')
        if level not in _LEVELS:
            raise BadChannelInput(f'"level" is one of {", ".join(_LEVELS)}')
        logging.getLogger(_CATEGORIES[category]).setLevel(_LEVELS[level])
        return NO_CONTENT
