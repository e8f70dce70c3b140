"""The hash that holds a row of a view: `view:<name>:<key>`, made from the values of the row's key columns.

    state = "new"                         view:orders:new
    state = "new", day = "a:b"            view:orders:new:a%3Ab
    state = "50 %"                        view:orders:50 %25
    state = null                          view:orders:%
    no key columns                        view:orders:

A `%` only occurs in `%25` (a percent sign), in `%3A` (a colon, if several values are joined by colons) and, alone, for
null. So no two keys share a name, and a colon stays readable if there is only one value. An empty text is an empty
part. `dataflow.group_names` makes these names, a column at a time.
"""

from __future__ import annotations

import re
from typing import Final

from tidelog.keys import VIEW_JOB_PREFIX, VIEW_ROW_PREFIX

VIEW_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


def hash_prefix(view: str) -> str:
    """The prefix of the hashes of a view. No other key has it."""
    return f"{VIEW_ROW_PREFIX}{view}:"


def lease_of(view: str) -> str:
    """The name of the lease for a view, and of its part in a job's report."""
    return f"{VIEW_JOB_PREFIX}{view}"
