"""SQL as a tree: sqlglot's Spark dialect, reduced to its grammar.

sqlglot knows what functions mean and would write many of them differently from how it read them. Here every function
stays as it is written (`exp.Anonymous`), except those with a syntax of their own, such as CAST: Spark gets what the
author of a view wrote. Clauses and kinds of expressions are listed here: whatever else SQL has, now or later, is
refused and not passed over.
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
        # So that `window(...)` is a function everywhere; the clause of that name is for OVER, which is refused.
        KEYWORDS: ClassVar = {word: kind for word, kind in Spark.Tokenizer.KEYWORDS.items() if word != "WINDOW"}

    class Parser(SparkParser):
        FUNCTIONS: ClassVar = {}
        FUNCTION_PARSERS: ClassVar = {
            name: parser for name, parser in SparkParser.FUNCTION_PARSERS.items() if name in _SPECIAL
        }


_CLAUSES: Final = frozenset(["expressions", "from_", "joins", "where", "group", "having"])
_REFUSED_CLAUSES: Final = {
    "with_": "WITH is not maintained: write it as one SELECT, or as a view of its own that this one reads",
    "distinct": "DISTINCT is not maintained: write GROUP BY with the columns that are to differ",
    "order": "ORDER BY has no meaning: a view is a set of rows; whoever reads it sorts",
    "sort": "SORT BY has no meaning: a view is a set of rows; whoever reads it sorts",
    "cluster": "CLUSTER BY has no meaning in a view: leave it out",
    "distribute": "DISTRIBUTE BY has no meaning in a view: leave it out",
    "limit": "LIMIT is not maintained: which rows are left would depend on all others; choose by WHERE or HAVING",
    "offset": "OFFSET is not maintained: which rows are left would depend on all others; choose by WHERE or HAVING",
    "laterals": "LATERAL VIEW is not maintained: a row of source is one row; store the parts as keys of their own",
    "qualify": "QUALIFY goes with window functions, which are not maintained: group instead",
    "hint": "hints are not taken: leave /*+ ... */ out",
    "pivots": "PIVOT is not maintained: write an aggregate with FILTER (WHERE ...) for each column",
    "sample": "TABLESAMPLE is not repeatable: choose by WHERE",
    "into": "INTO is not for views: the result has its place already",
    "locks": "FOR UPDATE is not for views: leave it out",
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
    """What sqlglot has to say, as one line."""
    return str(error).partition("\n")[0].strip().rstrip(".")


def written(tree: exp.Expr) -> str:
    """The SQL of a tree, every identifier in backquotes."""
    return tree.sql(dialect=Grammar, identify=True, comments=False)


def select_of(sql: str, refusal: Refusal) -> exp.Select:
    """The one SELECT that some SQL is, of a shape that can be maintained."""
    try:
        _refuse_long(words(sql), refusal)
        statements = [each for each in Grammar().parse(sql) if each is not None]
    except SqlglotError as error:
        raise refusal(f"sql cannot be read: {told(error)}") from None
    if len(statements) != 1:
        raise refusal(f"sql has {len(statements)} statements: write one SELECT")
    tree = statements[0]
    if isinstance(tree, exp.SetOperation):
        raise refusal("UNION, INTERSECT and EXCEPT are not maintained: write a view for each SELECT")
    if not isinstance(tree, exp.Select):
        raise refusal("sql is no SELECT: write select ... from source ...")
    for clause, value in tree.args.items():
        if value and clause not in _CLAUSES:
            raise refusal(_REFUSED_CLAUSES.get(clause, f"{clause.strip('_').upper()} is not maintained: leave it out"))
    if tree.args.get("from_") is None:
        raise refusal("there is no FROM: write select ... from source ...")
    return tree


def refuse_unknown(tree: exp.Expr, refusal: Refusal) -> None:
    """Refuse an expression with anything in it that is not known to be harmless; functions are looked at elsewhere."""
    for node in tree.walk():
        if isinstance(node, exp.Query):
            raise refusal("a query inside the SELECT is not maintained: join a lookup, or read a view of its own")
        if isinstance(node, exp.Window):
            raise refusal("OVER (...) is not maintained: a change would alter the rows of others; group instead")
        if isinstance(node, exp.IgnoreNulls | exp.RespectNulls):
            raise refusal("IGNORE NULLS is not maintained: leave the nulls out by WHERE")
        if isinstance(node, exp.WithinGroup):
            raise refusal("WITHIN GROUP is not maintained: group by what is to be told apart, and count")
        if isinstance(node, exp.Placeholder | exp.Parameter | exp.SessionParameter):
            raise refusal(f"{written(node)} stands for a value that nobody gives: write the value")
        if isinstance(node, exp.Cast) and node.this.name.strip().lower() in _TIMES_OF_TODAY and node.this.is_string:
            raise refusal(f"{node.this.name!r} as a time is not repeatable: write the time itself")
        if isinstance(node, exp.CurrentDate | exp.CurrentTimestamp | exp.CurrentUser | exp.SessionUser):
            raise refusal(f"{node.sql_name().lower()} is not repeatable: see to it that the data has the value")
        if not isinstance(node, _NODES):
            raise refusal(f"{written(node)}: such an expression is not maintained; write it otherwise")


def _refuse_long(tokens: list[str], refusal: Refusal) -> None:
    """Refuse what the parser, which is recursive, could not get through."""
    if len(tokens) > limits.VIEW_SQL_WORDS_MAX:
        raise refusal(f"sql has {len(tokens)} words, more than {limits.VIEW_SQL_WORDS_MAX}: write several views")
    depth = 0
    for token in map(str.upper, tokens):
        depth += (token in _DEEPER) - (token in _HIGHER)
        if depth > limits.VIEW_SQL_DEPTH_MAX:
            raise refusal(f"sql has more than {limits.VIEW_SQL_DEPTH_MAX} brackets inside each other: write it flatter")
