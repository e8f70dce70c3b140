"""How a view is kept: what each row contributes, and how the contributions of a group are reduced to a row of the view.

A plan consists of text and names alone, so it can be sent to tasks, stored and shown. Together with `View` it is all
that `views.dataflow` knows about the SQL of a view.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate of a group, over the rows that the projection gives for it."""

    function: str
    """`count`, `sum`, `min`, `max`, `avg`, `latest`, `max_by` or `min_by`. All but `latest` and the first argument of
    `max_by` and `min_by` ignore nulls. `latest` is the value, null or not, of the row that was changed last. If
    `max_by` has a choice of several values it takes the largest, `min_by` the smallest; null is below all."""
    arguments: tuple[str, ...]
    """Columns of the projection, `a0` …; none for `count(*)`, two for `max_by` and `min_by`, otherwise one."""
    is_distinct: bool = False
    """Of `count` only: values are counted, not rows."""


@dataclass(frozen=True, slots=True)
class Join:
    """A join that selects rows of a lookup by a value of the source."""

    alias: str
    """The name of the lookup in the SQL, in lower case."""
    lookup: str
    column: str
    """Of the lookup."""
    value: str
    """SQL over `source` that has to be equal to it."""


@dataclass(frozen=True, slots=True)
class ViewPlan:
    """How a view is kept.

    `projection` turns a row of `source` into its contributions. Contributions with equal `groups` are reduced by
    `aggregates` to one row of `groups` (g0 …, r0 …). `final`, or `outputs` alone, turns this into the row of the view.
    All SQL is Spark's, with every identifier in backquotes.
    """

    columns: tuple[str, ...]
    """Columns of `source` that the SELECT names, as they are written in the data, sorted. All are text."""
    lookups: Mapping[str, tuple[str, ...]]
    """The same for each lookup that is joined."""
    joins: tuple[Join, ...] | None
    """The joins, if each selects by a value; None: to find the rows that belong together, all have to be looked at."""
    projection: str
    """Over `source` (`columns`, and `_row`, which says which row it is) and the lookups: `_row`, g0 …, a0 …; nothing is
    aggregated. A row that WHERE or an inner join excludes gives no row; a row that a join multiplies gives several."""
    groups: tuple[str, ...]
    """`g0` …; none if `is_global`."""
    aggregates: tuple[Aggregate, ...]
    """The n-th gives column `r<n>`; no two are equal. Without any, only the existence of a group counts."""
    final: str | None
    """Expressions over a table `groups` of columns g*, r*: the outputs, in order, and `_shown`, whether HAVING is true.
    None if `outputs` is enough."""
    outputs: tuple[tuple[str, str], ...]
    """Names of the view's columns in order, each with its column of `groups`, or "" if `final` computes it."""
    key: tuple[str, ...]
    """Outputs that identify a row: no two rows have the same values."""
    is_global: bool
    """Aggregates without GROUP BY: there is always exactly one row, whose key is empty."""
    recompute: str
    """The whole view from scratch, over `source` (`columns`, and `_order` binary: unique, and the larger the later a
    row was changed) and the lookups."""
