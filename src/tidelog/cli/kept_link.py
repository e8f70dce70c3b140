"""A link for commands that run for long: if it is lost, the work goes on with another one.

Of several servers, that is a link to the one that leads then. How long the command waits for it, and whether it waits
also for the first one, is the same as for feeds (`client/patience.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NoReturn

from tidelog.address import ServerAddress
from tidelog.cli.outage import Outage
from tidelog.cli.server_link import ServerLink
from tidelog.errors import ServerRefused, ServerUnreachable
from tidelog.server_search import is_elsewhere


class KeptLink:
    """Links to the same server or servers, one after the other."""

    def __init__(self, address: ServerAddress) -> None:
        from tidelog.client.patience import Patience  # only here: it brings redis-py

        self._address = address
        self._patience = Patience(at_start=address.names_several)
        self._outage = Outage()

    def run(self, work: Callable[[ServerLink], NoReturn], then: Callable[[], str]) -> NoReturn:
        """Until the work ends with an error that another link does not heal.

        work   gets a link, and another one when it has lost that; it calls `answered` whenever it has got something
        then   says where the work will go on
        """
        while True:
            try:
                with ServerLink(self._address, waits=False) as link:
                    work(link)
            except (ServerUnreachable, ServerRefused) as error:
                lost = _lost(error)
                pause_s = self._patience.pause_s(lost)
                if pause_s is None:
                    raise lost from None
            self._outage.on_lost(str(lost), then(), has_begun=self._patience.has_reached)
            time.sleep(pause_s)

    def answered(self) -> None:
        """The link is good."""
        self._patience.reset()
        self._outage.end()


def _lost(error: ServerUnreachable | ServerRefused) -> ServerUnreachable:
    """The end of a link; a refusal is one only if another server may answer, or this one later."""
    if isinstance(error, ServerUnreachable):
        return error
    if not is_elsewhere(str(error)):
        raise error
    return ServerUnreachable(f"the server cannot answer now: {error}")
