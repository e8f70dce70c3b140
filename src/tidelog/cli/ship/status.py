"""`tidelog ship status`: how a copy stands, as the server says that ships it, or as the copy itself shows."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tidelog import limits
from tidelog.address import URL_DEFAULT
from tidelog.cli.copy_place import newest_manifest, open_copy
from tidelog.cli.exits import FAILED, FINE, guarded, until_pipe_closes
from tidelog.cli.options import AsJson, PasswordFile
from tidelog.cli.output.stdout import Output
from tidelog.cli.output.values import time_of, time_or_number
from tidelog.cli.server_link import connect
from tidelog.cli.ship_options import DatabaseId, KeyOfCopy
from tidelog.errors import ServerRefused

if TYPE_CHECKING:
    from tidelog.shipping.manifest import Manifest

EPILOG: Final = """\
Examples:

  tidelog ship status

  tidelog ship status --url redis://10.0.0.5:6399 --json | jq .lag_seconds

  tidelog ship status --from s3://bucket/tidelog

JSON: kind "shipping" of a server (url, state, is_fine, error, lag_seconds, manifest, ts, time, objects, bytes,
bytes_per_second, rounds, failures, snapshot_bytes_left, going, upkeep_error), kind "copy" of a copy (from, database,
is_fine, manifest, made_us, made_time, age_seconds, ts, time, moments).

Exit status: 0 if the copy is up to date; 1 if shipping fails, was taken over by another server, or is more than 30
seconds behind (of a copy: nothing has been shipped for so long); 2 if there is no server or no copy."""

_RATE_S: Final = 1.0
"""Between the two looks that make a rate."""
_FINE_STATES: Final = ("shipping", "follows", "taking over")


@guarded
def status(
    url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="TIDELOG_URL",
            help="The server that ships: redis://HOST:PORT, rediss://... (TLS) or unix:///PATH. "
            f"[default: {URL_DEFAULT}]",
        ),
    ] = None,
    password_file: PasswordFile = None,
    copy: Annotated[
        str | None,
        typer.Option("--from", metavar="URL", help="Look at the copy itself, and ask no server.", show_default=False),
    ] = None,
    database: DatabaseId = None,
    ship_key_file: KeyOfCopy = None,
    as_json: AsJson = False,
) -> int:
    """Say how far behind a copy is, and what is wrong with it.

    A server tells its state, its lag and its errors, and how fast it uploads. A copy tells when something was last
    shipped to it: a server that lives ships every 10 seconds, even if nothing has changed.
    """
    output = Output(as_json=as_json)
    if copy is not None:
        return _tell_copy(output, copy, newest_manifest(open_copy(copy, ship_key_file), copy, database))
    if database is not None or ship_key_file is not None:
        raise typer.BadParameter("--database and --ship-key-file are about a copy: name it with --from")
    return _tell_server(output, url or URL_DEFAULT, password_file)


# --- a server ---------------------------------------------------------------------------------------------------------


def _tell_server(output: Output, url: str, password_file: str | None) -> int:
    with connect(url, password_file) as link:
        first, began_s = link.info("shipping"), time.monotonic()
        if "shipping_enabled" not in first:
            raise ServerRefused(f"the server at {url} is no Tidelog, or a version that does not ship")
        if first["shipping_enabled"] == "0":
            raise ServerRefused(f"the server at {url} keeps no copy: it was started without --ship-to")
        time.sleep(_RATE_S)
        facts, took_s = link.info("shipping"), time.monotonic() - began_s
    rate = (int(facts["shipping_bytes_put"]) - int(first["shipping_bytes_put"])) / took_s
    lag_us, ts, state = int(facts["shipping_lag_us"]), int(facts["shipping_shipped_ts"]), facts["shipping_state"]
    is_fine = state in _FINE_STATES and lag_us <= limits.SHIP_BEHIND_US
    members = {
        "url": facts["shipping_url"],
        "state": state,
        "is_fine": is_fine,
        "error": facts["shipping_error"],
        "lag_seconds": lag_us / 1e6,
        "manifest": int(facts["shipping_manifest"]),
        "ts": ts,
        "time": time_of(ts or None),
        "objects": int(facts["shipping_objects_put"]),
        "bytes": int(facts["shipping_bytes_put"]),
        "bytes_per_second": max(0, round(rate)),
        "rounds": int(facts["shipping_rounds"]),
        "failures": int(facts["shipping_failures"]),
        "snapshot_bytes_left": int(facts["shipping_snapshot_bytes_left"]),
        "going": int(facts["shipping_going"]),
        "upkeep_error": facts["shipping_upkeep_error"],
    }
    with until_pipe_closes():
        if output.as_json:
            output.object("shipping", members)
        else:
            _print_server(output, members)
    return FINE if is_fine else FAILED


def _print_server(output: Output, members: dict[str, Any]) -> None:
    style = "green" if members["is_fine"] else "red"
    output.line(f"copy      {members['url']}")
    output.line(f"state     {members['state']}", style)
    if members["error"]:
        output.line(f"error     {members['error']}", "red")
    output.line(f"behind    {members['lag_seconds']:.1f} s", "" if members["is_fine"] else style)
    output.line(
        f"up to     {time_or_number(members['ts'] or None)} (ts {members['ts']}), manifest {members['manifest']}"
    )
    shipped = f"{members['objects']} objects, {members['bytes']} bytes since the server began"
    output.line(f"uploaded  {shipped}; now {members['bytes_per_second']} bytes/s")
    output.line(f"rounds    {members['rounds']}, and {members['failures']} failures")
    if members["snapshot_bytes_left"]:
        output.line(f"snapshot  {members['snapshot_bytes_left']} bytes of it are still to be uploaded")
    if members["going"]:
        output.line(f"going     {members['going']} objects are announced to be deleted")
    if members["upkeep_error"]:
        output.line(f"upkeep    what is needed no more stays: {members['upkeep_error']}", "red")


# --- a copy -----------------------------------------------------------------------------------------------------------


def _tell_copy(output: Output, place: str, manifest: Manifest) -> int:
    from tidelog.shipping.moments import covered_moments

    age_us = max(0, time.time_ns() // 1000 - manifest.made_us)
    covered = covered_moments(manifest)
    last = manifest.lineages[-1].ts if manifest.lineages else 0
    is_fine = age_us <= limits.SHIP_BEHIND_US and bool(covered)
    moments = [
        {"from_ts": run.first, "from": time_of(run.first or None), "to_ts": run.last, "to": time_of(run.last)}
        for run in covered
    ]
    with until_pipe_closes():
        if output.as_json:
            output.object(
                "copy",
                {
                    "from": place,
                    "database": manifest.database_id,
                    "is_fine": is_fine,
                    "manifest": manifest.number,
                    "made_us": manifest.made_us,
                    "made_time": time_of(manifest.made_us),
                    "age_seconds": age_us / 1e6,
                    "ts": last,
                    "time": time_of(last or None),
                    "moments": moments,
                },
            )
        else:
            output.line(f"copy      {place}, database {manifest.database_id}")
            shipped = f"{time_or_number(manifest.made_us)}, {age_us / 1e6:.1f} s ago, manifest {manifest.number}"
            output.line(f"shipped   {shipped}", "green" if is_fine else "red")
            output.line(f"up to     {time_or_number(last or None)} (ts {last})")
            for each in moments:
                output.line(f"moments   {each['from'] or 'the beginning'} to {each['to']}")
            if not moments:
                output.line("moments   none can be restored yet: the first snapshot is still being shipped", "yellow")
    return FINE if is_fine else FAILED
