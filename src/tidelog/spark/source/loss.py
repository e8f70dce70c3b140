"""What happens when something that was to be read is gone: the option `failOnDataLoss`.

    true (default)   an error, which says what was lost and what to do
    false            a warning in the log that says what was skipped, and the reader goes on at what there is

One policy for all kinds. It says nothing about what was read before: if a server has lost changes that a query already
has, the rows of these stay where the query put them.
"""

from __future__ import annotations

import logging
from typing import Final

from tidelog.spark.options import Options

_LOG: Final = logging.getLogger("tidelog")


def take_fail_on_loss(options: Options) -> bool:
    return options.flag("failOnDataLoss", True, older="fail_on_loss")


def raise_or_log(loss: Exception, *, fail_on_loss: bool) -> None:
    """Raise a loss, or log it."""
    if fail_on_loss:
        raise loss
    log_loss(str(loss))


def log_loss(what: str) -> None:
    """On the driver it is in the driver's output, in a task in that of the executor."""
    _LOG.warning("data loss, passed over because failOnDataLoss is false: %s", what)
