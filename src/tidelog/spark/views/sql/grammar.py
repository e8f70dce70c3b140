"""SQL as a tree: sqlglot's Spark dialect, reduced to its grammar.

sqlglot knows what functions mean and would write many of them differently from how it read them. Here every function
stays as it is written (`exp.Anonymous`), except those with a syntax of their own, such as CAST. So Spark gets what the
author of a view wrote. This module lists the allowed clauses and kinds of expressions; all others are refused, also
those that a later version of SQL may add.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.parsers.spark import SparkParser

from tidelog import limits
from tidelog.errors import BadView

Refusal = Callable[[str], BadView]
"""Makes the error that names the view."""

_SPECIAL: Final = frozenset(["CAST", "TRY_CAST", "EXTRACT", "TRIM", "OVERLAY", "POSITION", "SUBSTR", "SUBSTRING"])
"""Functions with words between their arguments."""


class Grammar(Spark):
    """Spark's SQL without its functions."""

    class Tokenizer(Spark.Tokenizer):
        # So that `window(...)` is a function everywhere. The clause of that name belongs to OVER, which is refused.
        KEYWORDS: ClassVar = {word: kind for word, kind in Spark.Tokenizer.KEYWORDS.items() if word != "WINDOW"}

    class Parser(SparkParser):
        FUNCTIONS: ClassVar = {}
        FUNCTION_PARSERS: ClassVar = {
            name: parser for name, parser in SparkParser.FUNCTION_PARSERS.items() if name in _SPECIAL
        }


_CLAUSES: Final = frozenset(["expressions", "from_", "joins", "where", "group", "having"])
_REFUSED_CLAUSES: Final = {
    "with_": "WITH is not supported: write one SELECT, or declare a second view and read from it",
    "distinct": "DISTINCT is not supported: write GROUP BY with the same columns",
    "order": "ORDER BY has no meaning: a view is a set of rows without an order; sort when you read it",
    "sort": "SORT BY has no meaning: a view is a set of rows without an order; sort when you read it",
    "cluster": "CLUSTER BY has no meaning in a view: remove it",
    "distribute": "DISTRIBUTE BY has no meaning in a view: remove it",
    "limit": "LIMIT is not supported: which rows remain would depend on all other rows; use WHERE or HAVING",
    "offset": "OFFSET is not supported: which rows remain would depend on all other rows; use WHERE or HAVING",
    "laterals": "LATERAL VIEW is not supported: a row of source stays one row; store each part under its own key",
    "qualify": "QUALIFY goes with window functions, which are not supported: group instead",
    "hint": "hints are not supported: remove /*+ ... */",
    "pivots": "PIVOT is not supported: write an aggregate with FILTER (WHERE ...) for each column",
    "sample": "TABLESAMPLE is not repeatable: use WHERE",
    "into": "INTO is not supported: a view is always written to its hashes and its table",
    "locks": "FOR UPDATE is not supported: remove it",
}

_NODES: Final = (
    exp.Alias,
    exp.All,
    exp.Anonymous,
    exp.Any,
    exp.Between,
    exp.Binary,
    exp.BitwiseNot,
    exp.Boolean,
    exp.Bracket,
    exp.Case,
    exp.Cast,
    exp.Column,
    exp.ColumnDef,
    exp.DataType,
    exp.DataTypeParam,
    exp.Distinct,
    exp.Exists,
    exp.Extract,
    exp.Filter,
    exp.HexString,
    exp.Identifier,
    exp.If,
    exp.In,
    exp.Interval,
    exp.IntervalSpan,
    exp.Lambda,
    exp.Literal,
    exp.Neg,
    exp.Not,
    exp.Null,
    exp.Overlay,
    exp.Paren,
    exp.Star,
    exp.StrPosition,
    exp.Substring,
    exp.Transform,
    exp.Trim,
    exp.TryCast,
    exp.Tuple,
    exp.Var,
    exp.Where,
)
_TIMES_OF_TODAY: Final = frozenset(["now", "today", "tomorrow", "yesterday", "epoch"])
_DEEPER: Final = frozenset(["(", "[", "CASE"])
_HIGHER: Final = frozenset([")", "]", "END"])


def words(sql: str) -> list[str]:
    """The words of some SQL as they are written, without white space and comments."""
    return [sql[token.start : token.end + 1] for token in Grammar().tokenize(sql)]


def told(error: SqlglotError) -> str:
    """sqlglot's message, as one line."""
    return str(error).partition("\n")[0].strip().rstrip(".")


def written(tree: exp.Expr) -> str:
    """The SQL of a tree, every identifier in backquotes."""
    return tree.sql(dialect=Grammar, identify=True, comments=False)


def select_of(sql: str, refusal: Refusal) -> exp.Select:
    """The one SELECT of a view, with only the clauses that are supported."""
    try:
        _refuse_long(words(sql), refusal)
        statements = [each for each in Grammar().parse(sql) if each is not None]
    except SqlglotError as error:
        raise refusal(f"sql cannot be read: {told(error)}") from None
    if len(statements) != 1:
        raise refusal(f"sql has {len(statements)} statements: write one SELECT")
    tree = statements[0]
    if isinstance(tree, exp.SetOperation):
        raise refusal("UNION, INTERSECT and EXCEPT are not supported: declare a view for each SELECT")
    if not isinstance(tree, exp.Select):
        raise refusal("sql is not a SELECT: write select ... from source ...")
    for clause, value in tree.args.items():
        if value and clause not in _CLAUSES:
            raise refusal(_REFUSED_CLAUSES.get(clause, f"{clause.strip('_').upper()} is not supported: remove it"))
    if tree.args.get("from_") is None:
        raise refusal("there is no FROM: write select ... from source ...")
    return tree


def refuse_unknown(tree: exp.Expr, refusal: Refusal) -> None:
    """Refuse an expression that contains a node which is not allowed. `aggregates` checks the functions."""
    for node in tree.walk():
        if isinstance(node, exp.Query):
            raise refusal("a subquery is not supported: join a lookup, or read from a second view")
        if isinstance(node, exp.Window):
            raise refusal("OVER (...) is not supported: one change would alter many rows; use GROUP BY")
        if isinstance(node, exp.IgnoreNulls | exp.RespectNulls):
            raise refusal("IGNORE NULLS is not supported: exclude nulls with WHERE")
        if isinstance(node, exp.WithinGroup):
            raise refusal("WITHIN GROUP is not supported: group by the value, and count")
        if isinstance(node, exp.Placeholder | exp.Parameter | exp.SessionParameter):
            raise refusal(f"{written(node)} is a parameter, and a view has no parameters: write the value")
        if isinstance(node, exp.Cast) and node.this.name.strip().lower() in _TIMES_OF_TODAY and node.this.is_string:
            raise refusal(f"{node.this.name!r} as a time is not repeatable: write the time itself")
        if isinstance(node, exp.CurrentDate | exp.CurrentTimestamp | exp.CurrentUser | exp.SessionUser):
            raise refusal(f"{node.sql_name().lower()} is not repeatable: store the value in the data")
        if not isinstance(node, _NODES):
            raise refusal(f"{written(node)} is not supported in a view: rewrite it")


def _refuse_long(tokens: list[str], refusal: Refusal) -> None:
    """Refuse SQL that is too long or too deep for the parser, which is recursive."""
    if len(tokens) > limits.VIEW_SQL_WORDS_MAX:
        raise refusal(
            f"sql has {len(tokens)} words, more than {limits.VIEW_SQL_WORDS_MAX}: split it into several views"
        )
    depth = 0
    for token in map(str.upper, tokens):
        depth += (token in _DEEPER) - (token in _HIGHER)
        if depth > limits.VIEW_SQL_DEPTH_MAX:
            raise refusal(f"sql nests more than {limits.VIEW_SQL_DEPTH_MAX} brackets: make it flatter")
