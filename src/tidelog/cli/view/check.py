"""`tidelog view check`: compares views with their recomputation from scratch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tidelog.address import URL_DEFAULT
from tidelog.cli.exits import FAILED, FINE, guarded
from tidelog.cli.options import AsJson, Conf, DatabaseNumber, Master, PasswordFile, StorageOptions, To, Url
from tidelog.cli.output.stdout import Column, Output
from tidelog.cli.pipeline.session import LIGHT, needs_spark, spark_session
from tidelog.cli.server_link import connected, find_address
from tidelog.errors import ClientError

if TYPE_CHECKING:
    from tidelog.spark.views.dataflow.comparison import Check, Differences

EPILOG: Final = """\
Examples:

  tidelog view check --to lake

  tidelog view check orders_by_state --to lake --json

Spark computes each view again from all of its source. The result is compared with the hashes on the server and with the
table in the lake.

JSON: kind "check" (view, right, settled, rows, hashes, table; hashes and table have lists of keys: missing, wrong and
extra).

Exit status: 0 if all views are right, 1 if one is not, 2 if they could not be checked."""

_COLUMNS: Final = (
    Column("view", style="bold"),
    Column("rows", right=True),
    Column("hashes"),
    Column("table"),
    Column("", style="bold"),
)
_KEYS_SHOWN: Final = 3


@guarded
def check(
    to: To,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Check only these views.", show_default=False)
    ] = None,
    url: Url = URL_DEFAULT,
    password_file: PasswordFile = None,
    database: DatabaseNumber = 0,
    file: Annotated[
        str | None,
        typer.Option(
            "--file",
            metavar="FILE",
            help="Take the definitions from this TOML file instead of the lake.",
            show_default=False,
        ),
    ] = None,
    storage: StorageOptions = None,
    master: Master = None,
    conf: Conf = None,
    as_json: AsJson = False,
) -> int:
    """Recompute views from scratch, and compare the results with the views."""
    address = find_address(url, password_file, database)
    output = Output(as_json=as_json)
    with needs_spark():
        from tidelog.spark.delta.storage import find_storage
        from tidelog.spark.endpoint import Endpoint
        from tidelog.spark.source.feed.position import explored_feed_server
        from tidelog.spark.views.dataflow.checking import check_view, stored_views
        from tidelog.spark.views.sql.definition import read_views
    place = find_storage(to, storage or ())
    views = stored_views(place, names or []) if file is None else read_views(file)
    strange = set(names or ()) - {view.name for view in views}
    if strange:
        raise ClientError(f"{file} has no view {min(strange)}")
    views = [view for view in views if not names or view.name in names]
    if not views:
        raise ClientError(f"there are no views in {place.root}")
    checks = []
    with connected(address), spark_session("tidelog check", master, conf, settings=LIGHT) as spark:
        server = explored_feed_server(Endpoint(address))
        for view in views:
            found = check_view(spark(), place, server, view)
            checks.append(found)
            if as_json:
                output.object("check", _members(found))
    if not as_json:
        output.table(_COLUMNS, [_row(each) for each in checks])
    return FINE if all(each.is_right for each in checks) else FAILED


def _members(check: Check) -> dict[str, Any]:
    return {
        "view": check.view,
        "right": check.is_right,
        "settled": check.is_settled,
        "rows": check.rows,
        "hashes": check.hashes._asdict(),
        "table": check.table._asdict(),
    }


def _row(check: Check) -> list[Any]:
    verdict = "right" if check.is_right else "WRONG" if check.is_settled else "behind, or wrong"
    return [check.view, check.rows, _shown(check.hashes), _shown(check.table), verdict]


def _shown(found: Differences) -> str:
    parts = [
        f"{len(keys)} {what} ({', '.join(keys[:_KEYS_SHOWN])}{', …' if len(keys) > _KEYS_SHOWN else ''})"
        for what, keys in zip(found._fields, found, strict=True)
        if keys
    ]
    return ", ".join(parts) or "as they should be"
