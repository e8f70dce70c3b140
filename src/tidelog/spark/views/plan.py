"""How a view is maintained: what of a row counts, and what is made of the rows that belong together.

A plan is text and names alone, so that it can be sent to tasks, kept and shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate of a group, over the rows that the projection gives for it."""

    function: str
    """`count`, `sum`, `min`, `max`, `avg`, `latest`, `max_by` or `min_by`. All but `latest` and the first argument of
    `max_by` and `min_by` pass nulls over. `latest` is the value, null or not, of the row that was changed last. Of
    several values that `max_by` could take it takes the largest, `min_by` the smallest, where null is below all."""
    arguments: tuple[str, ...]
    """Columns of the projection, `a0` …; none for `count(*)`, two for `max_by` and `min_by`, otherwise one."""
    is_distinct: bool = False
    """Of `count` only: values are counted, not rows."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a view is maintained.

    A row of `source` contributes what `projection` makes of it. Contributions of equal `groups` are reduced by
    `aggregates`, which gives a row of `groups` (g0 …, r0 …) for each; `final`, or `outputs` alone, makes of it the row
    of the view. All SQL is Spark's, with every identifier in backquotes.
    """

    columns: tuple[str, ...]
    """Columns of `source` that the SELECT names, as they are written in the data, sorted. All are text."""
    lookups: Mapping[str, tuple[str, ...]]
    """The same for each lookup that is joined."""
    projection: str
    """Over `source` (`columns`, and `_row` bigint) and the lookups: `_row`, g0 …, a0 …; nothing is aggregated. A row
    that WHERE or an inner join leaves out gives no row, one that a join multiplies gives several."""
    groups: tuple[str, ...]
    """`g0` …; none if `is_global`."""
    aggregates: tuple[Aggregate, ...]
    """The n-th gives column `r<n>`; none is there twice. There may be none: then a group is there or not."""
    final: str | None
    """Over a table `groups` of columns g*, r*: the outputs, in order, of the rows that HAVING lets pass. None if
    `outputs` says it all."""
    outputs: tuple[tuple[str, str], ...]
    """Names of the view's columns in order, each with the column of `groups` that it is, or "" if `final` makes it."""
    key: tuple[str, ...]
    """Outputs that name a row: no two rows have the same."""
    is_global: bool
    """Aggregates without GROUP BY: there is always exactly one row, whose key is empty."""
    recompute: str
    """The whole view from scratch, over `source` (`columns`, and `_order` bigint: unique, and the larger the later a
    row was changed) and the lookups."""
