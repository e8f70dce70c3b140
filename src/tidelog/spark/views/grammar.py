"""SQL as a tree: sqlglot's Spark dialect, reduced to its grammar.

sqlglot knows what functions mean and would write many of them differently from how it read them. Here every function
stays as it is written (`exp.Anonymous`), except those with a syntax of their own, such as CAST: Spark gets what the
author of a view wrote.
"""

from __future__ import annotations

from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError


def words(sql: str) -> list[str]:
    """The words of some SQL as they are written, without white space and comments."""
    return [sql[token.start : token.end + 1] for token in Spark().tokenize(sql)]


def told(error: SqlglotError) -> str:
    """What sqlglot has to say, as one line without colours."""
    return str(error).partition("\n")[0]
