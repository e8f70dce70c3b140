"""The file that declares views: what is read from it, how all that is wrong is refused; and the names of hashes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.spark.hash_names import hash_name, parts_of
from tidelog import limits
from tidelog.errors import BadView
from tidelog.spark.views.naming import hash_prefix
from tidelog.spark.views.sql.definition import View, ViewSource, read_views

GOOD = """
[views.orders_by_state]
source = "prefix:order:"
sql = "select state, count(*) as n from source group by state"
key = "state"

[views.orders_by-name]
source = "stream:orders"
sql = '''select c.name, count(*) as n
         from source join customers as c on c.key = source.customer group by c.name'''
key = ["name"]
[views.orders_by-name.lookups]
customers = "prefix:customer:"

[views.failures]
source = "days:queue/jobs/a"
sql = "select count(*) as n from source"
key = []
"""


def read(folder: Path, text: str) -> list[View]:
    path = folder / "views.toml"
    path.write_text(text)
    return read_views(str(path))


def declared(name: str = "a", **entries: str) -> str:
    given = {"source": '"prefix:o:"', "sql": '"select count(*) as n from source"', "key": "[]", **entries}
    return f"[views.{name}]\n" + "\n".join(f"{entry} = {value}" for entry, value in given.items() if value) + "\n"


def test_views_are_read_in_order(tmp_path: Path) -> None:
    first, second, third = read(tmp_path, GOOD)
    assert (first.name, first.source, first.key, first.lookups) == (
        "orders_by_state",
        ViewSource("prefix", "order:"),
        ("state",),
        {},
    )
    assert second.source == ViewSource("stream", "orders")
    assert second.lookups == {"customers": ViewSource("prefix", "customer:")}
    assert (third.source, third.key) == (ViewSource("days", "queue/jobs/a"), ())
    assert str(third.source) == "days:queue/jobs/a"


def test_the_digest_is_of_what_decides_the_result(tmp_path: Path) -> None:
    def digest(name: str = "a", **entries: str) -> str:
        return read(tmp_path, declared(name, **entries))[0].digest

    same = digest()
    assert digest("b") == same
    assert digest(sql='"select  count( * ) as n -- all\\n from source"') == same
    others = {
        digest(source='"prefix:p:"'),
        digest(source='"stream:o:"'),
        digest(sql='"select count(*) as m from source"'),
        digest(sql='"select count(*) as N from source"'),
        digest(sql="\"select count('*') as n from source\""),
        digest(key='["n"]'),
        digest(lookups='{ c = "prefix:c:" }'),
    }
    assert len(others | {same}) == 8


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[views", "not TOML: "),
        ("", "declares no view: write [views.NAME]"),
        ("[views]", "declares no view"),
        ("views = 3", "declares no view"),
        ("[view.a]", "view is not a known entry"),
        ("[views]\na = 3", "view a: is 3, but must be a table: write [views.a]"),
        (declared('"a b"'), "view a b: a name is 1 to 64"),
        (declared("a" * 65), "a name is 1 to 64"),
        (declared(sources='"x"'), "view a: sources is not a known entry (use source, sql, key, lookups)"),
        (declared(source=""), 'source is missing: write for example source = "prefix:order:"'),
        (declared(sql=""), "sql is missing"),
        (declared(key=""), 'key is missing: write the columns that name a row, such as key = ["state"]'),
        (declared(source="3"), "source is 3, but must be text"),
        (declared(source='"order:"'), 'source is \'order:\': write "prefix:P" or "stream:KEY" or'),
        (declared(source='"order"'), "source is 'order': write"),
        (declared(source='"stream:"'), "the key of the stream is missing"),
        (declared(source='"days:queue"'), "name a job set as days:QUEUE/JOBSET"),
        (declared(source='"days:/a"'), "name a job set as days:QUEUE/JOBSET"),
        (declared(source='"days:*/nightly"'), "patterns are not supported: name one job set"),
        (declared(source='"stream:log-?"'), "patterns are not supported: name one stream"),
        (declared(source="'stream:[ab]'"), "patterns are not supported: name one stream"),
        (declared(source='"prefix:%s"' % ("a" * 1025)), "source has 1025 characters, more than 1024"),
        (declared(source='"prefix:order:*"'), "a prefix has no *: write prefix:order:"),
        (
            declared(source='"prefix:"'),
            "includes the view's own hashes view:a:*, so the view would read what it writes",
        ),
        (declared(source='"prefix:vi"'), "would read what it writes"),
        (declared(source='"prefix:view:a:"'), "would read what it writes"),
        (declared(source='"prefix:view:a:x"'), "would read what it writes"),
        (declared(lookups='{ c = "prefix:view:" }'), "lookup c 'prefix:view:' includes the view's own hashes"),
        (declared(sql="[]"), "sql is [], but must be text: one SELECT"),
        (declared(sql='" -- nothing"'), "sql is empty"),
        (declared(sql='"select \'a"'), "sql cannot be read: "),
        (declared(sql='"%s"' % (" " * (limits.VIEW_SQL_CHARS_MAX + 1))), "sql has 20001 characters, more than 20000"),
        (declared(key="3"), 'key is 3: write the columns that name a row, such as ["state"]'),
        (declared(key='["a", 3]'), 'key is ["a", 3]'),
        (declared(key='""'), 'key is ""'),
        (declared(key='["a", "b", "a"]'), "key names a column twice: a, b, a"),
        (declared(lookups="3"), "lookups is 3: write [views.a.lookups]"),
        (declared(lookups='{ c = "stream:c" }'), "lookup c is 'stream:c': write \"prefix:P\""),
        (declared(lookups="{ c = true }"), "lookup c is true, but must be text"),
        (declared(lookups='{ "c d" = "prefix:c:" }'), "lookup 'c d': a name is a letter"),
        (declared(lookups='{ Source = "prefix:c:" }'), "the name source is reserved"),
        (declared(lookups='{ c = "prefix:c:", C = "prefix:d:" }'), "differs only in case"),
        (declared() + "".join(f'lookups.c{n} = "prefix:c:"\n' for n in range(9)), "9 lookups, more than 8"),
        ("".join(declared(f"a{number}") for number in range(101)), "has 101 views, more than 100"),
    ],
)
def test_a_bad_file_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(BadView) as error:
        read(tmp_path, text)
    assert str(error.value).startswith(f"{tmp_path / 'views.toml'}: ")
    assert reason in str(error.value)


def test_a_file_that_is_not_there_or_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadView, match="cannot be read: No such file"):
        read_views(str(tmp_path / "none.toml"))
    (tmp_path / "bytes.toml").write_bytes(b"\xff")
    with pytest.raises(BadView, match="not TOML"):
        read_views(str(tmp_path / "bytes.toml"))


def test_views_that_feed_each_other_are_refused(tmp_path: Path) -> None:
    chain = declared("a", source='"prefix:view:b:"') + declared("b", lookups='{ c = "prefix:view:c:x" }')
    assert [view.name for view in read(tmp_path, chain + declared("c"))] == ["a", "b", "c"]
    with pytest.raises(BadView, match="view a: reads what it writes: a reads b reads c reads a; let one of them"):
        read(tmp_path, chain + declared("c", source='"prefix:view:a:"'))


def test_a_stream_named_like_a_hash_is_not_one(tmp_path: Path) -> None:
    assert read(tmp_path, declared("a", source='"stream:view:a:x"'))[0].source.target == "view:a:x"


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        ((), "view:v:"),
        (("new",), "view:v:new"),
        (("a:b",), "view:v:a:b"),
        (("50 %",), "view:v:50 %25"),
        (("",), "view:v:"),
        ((None,), "view:v:%"),
        (("a", "b:c"), "view:v:a:b%3Ac"),
        ((None, "%", ""), "view:v:%:%25:"),
    ],
)
def test_a_hash_is_named_by_the_key(parts: tuple[str | None, ...], name: str) -> None:
    assert hash_name("v", parts) == name
    assert parts_of("v", name, len(parts)) == parts


@given(st.lists(st.none() | st.text("%:25A3a", max_size=6), max_size=3))
def test_names_of_hashes_are_read_back(parts: list[str | None]) -> None:
    name = hash_name("v", parts)
    assert name.startswith(hash_prefix("v"))
    assert parts_of("v", name, len(parts)) == tuple(parts)


@pytest.mark.parametrize(
    ("name", "count"),
    [("view:w:a", 1), ("order:a", 1), ("view:v:a", 2), ("view:v:a:b:c", 2), ("view:v:%2", 1), ("view:v:a", 0)],
)
def test_what_names_no_row_is_not_read(name: str, count: int) -> None:
    with pytest.raises(ValueError, match="names no row of view v"):
        parts_of("v", name, count)
