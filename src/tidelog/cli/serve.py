"""`tidelog serve`: run a server until it is told to stop."""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperCommand

from tidelog.address import PORT_DEFAULT
from tidelog.cli.exits import FINE, guarded
from tidelog.cli.output.values import printable
from tidelog.cli.ship_options import (
    DatabaseId,
    FollowFrom,
    HistoryBandwidth,
    HistoryCache,
    LocalHistory,
    RestoreFrom,
    RestoreLazy,
    RestoreWait,
    ShipBandwidth,
    ShipKeep,
    ShipKeyFile,
    ShipTo,
)

if TYPE_CHECKING:
    from tidelog.server.runtime import Runtime, ServerConfig

EPILOG: Final = f"""\
Every option can also be set in the environment (--http-port is TIDELOG_HTTP_PORT) and in the configuration file
(http-port = 8399). The command line wins over the environment, and the environment wins over the file.

Examples:

  tidelog serve --data data

  tidelog serve --data data --fsync always --requirepass-file secret.txt --host 0.0.0.0

  tidelog serve --data copy --port 6400 --http-port 0 --flight-port 0 --replicaof 127.0.0.1 6399

  redis-cli -p {PORT_DEFAULT} set greeting hello"""


class ServeCommand(TyperCommand):
    """Takes `--replicaof HOST PORT`, as redis-server does, beside `--replicaof HOST:PORT`."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]  # as click has it
        return super().parse_args(ctx, join_leader(args))


def join_leader(words: list[str]) -> list[str]:
    """The words of a command line, with a leader's host and port as one. `serve` takes no words without an option, so a
    number after the host can be nothing else."""
    if "--replicaof" in words:
        host = words.index("--replicaof") + 1
        if len(words) > host + 1 and words[host + 1].isdecimal():
            return [*words[:host], f"{words[host]} {words[host + 1]}", *words[host + 2 :]]
    return words


def _bound(default: int, what: str) -> Any:
    """The option of a bound of Redis's encodings."""
    return typer.Option(metavar="N", help=f"For OBJECT ENCODING: {what}. [default: {default}]")


@guarded
def serve(
    data: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="The data directory; it is created if it does not exist. [default: data]"),
    ] = None,
    host: Annotated[
        str | None, typer.Option(metavar="HOST", help="The address to listen on. [default: 127.0.0.1]")
    ] = None,
    port: Annotated[
        str | None,
        typer.Option(
            metavar="PORT",
            help=f"The port for Redis clients; 0: no port, auto: any that is free, told in the line that it prints "
            f"when it is ready. [default: {PORT_DEFAULT}]",
        ),
    ] = None,
    http_port: Annotated[
        str | None,
        typer.Option(
            "--http-port",
            metavar="PORT",
            help="The HTTP port for /metrics, /health, /feed and channels; 0: no port, auto: any that is free. "
            "[default: 8399]",
        ),
    ] = None,
    flight_port: Annotated[
        str | None,
        typer.Option(
            "--flight-port",
            metavar="PORT",
            help="The port for Arrow Flight; 0: no port, auto: any that is free. [default: 8499]",
        ),
    ] = None,
    http_hosts: Annotated[
        str | None,
        typer.Option(
            "--http-hosts",
            metavar="NAME,...",
            help="Host names that HTTP requests may use, besides those of the loopback interface.",
        ),
    ] = None,
    http_per_address: Annotated[
        str | None,
        typer.Option(
            "--http-per-address",
            metavar="N",
            help="The highest number of HTTP connections of one address other than this machine. [default: 256]",
        ),
    ] = None,
    metrics_open: Annotated[
        bool | None,
        typer.Option(
            "--metrics-open/--no-metrics-open", help="Answer /metrics also without the password. [default: no]"
        ),
    ] = None,
    unix_socket: Annotated[
        str | None,
        typer.Option("--unix-socket", metavar="PATH", help="A socket for Redis clients of the same user."),
    ] = None,
    shards: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="The number of shards of a new data directory; `tidelog restore --shards` makes a copy with another "
            "number. [default: 1]",
        ),
    ] = None,
    fsync: Annotated[
        str | None,
        typer.Option(
            metavar="POLICY",
            help="When changes are synced to disk: always (before the reply), everysec or never. [default: everysec]",
        ),
    ] = None,
    requirepass_file: Annotated[
        str | None,
        typer.Option(
            "--requirepass-file",
            metavar="FILE",
            help="Clients must authenticate with the password in the first line of this file. Without a password, "
            "only clients on this machine are served.",
        ),
    ] = None,
    tls_cert: Annotated[
        str | None, typer.Option("--tls-cert", metavar="FILE", help="Serve TLS with this certificate chain (PEM).")
    ] = None,
    tls_key: Annotated[str | None, typer.Option("--tls-key", metavar="FILE", help="The certificate's key.")] = None,
    tls_replication: Annotated[
        bool | None, typer.Option("--tls-replication", help="Follow the leader over TLS.", show_default=False)
    ] = None,
    tls_ca_cert_file: Annotated[
        str | None,
        typer.Option(
            "--tls-ca-cert-file",
            metavar="FILE",
            help="The authorities (PEM) that the leader's certificate must come from. [default: those of the system]",
        ),
    ] = None,
    maxmemory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="Refuse writes above this much memory, such as 2gb; 0: no limit. [default: 0]"
        ),
    ] = None,
    hot_stream_bytes: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="What entries of streams may take in memory before all of them go to disk. "
            "[default: a sixteenth of the machine's memory]",
        ),
    ] = None,
    stream_bytes_max: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="What all streams may take: past it the oldest entries go. [default: 0]"),
    ] = None,
    maxclients: Annotated[
        str | None, typer.Option(metavar="N", help="The highest number of client connections. [default: 10000]")
    ] = None,
    timeout: Annotated[
        str | None,
        typer.Option(
            metavar="SECONDS", help="Close a connection that has been idle for this long; 0: never. [default: 0]"
        ),
    ] = None,
    http_feeds: Annotated[
        str | None,
        typer.Option("--http-feeds", metavar="N", help="The highest number of feeds over HTTP. [default: 1000]"),
    ] = None,
    feed_checkpoint: Annotated[
        str | None,
        typer.Option(
            "--feed-checkpoint",
            metavar="MS",
            help="The time between two checkpoints of a feed that does not ask for another. [default: 1000]",
        ),
    ] = None,
    script_time_limit: Annotated[
        str | None,
        typer.Option(
            "--script-time-limit",
            metavar="MS",
            help="How long a Lua script may run; twice as long once it has written. [default: 1000]",
        ),
    ] = None,
    script_memory_limit: Annotated[
        str | None,
        typer.Option(
            "--script-memory-limit", metavar="SIZE", help="What the values of a Lua script may take. [default: 64mb]"
        ),
    ] = None,
    feed_repeats: Annotated[
        str | None,
        typer.Option(
            "--feed-repeats",
            metavar="N",
            help="How often a reader may begin a feed at the same place at once; after that, once in ten seconds. "
            "0: no limit. [default: 20]",
        ),
    ] = None,
    snapshot_after: Annotated[
        str | None,
        typer.Option(
            "--snapshot-after",
            metavar="SIZE",
            help="Make a snapshot when the journal since the last snapshot is larger than this and than that "
            "snapshot; 0: only on request. [default: 256mb]",
        ),
    ] = None,
    retain_bytes: Annotated[
        str | None,
        typer.Option(
            "--retain-bytes",
            metavar="SIZE",
            help="Keep at most this much of the journal that snapshots cover, for feeds and Spark; 0: no limit. "
            "[default: 4gb]",
        ),
    ] = None,
    retain_age: Annotated[
        str | None,
        typer.Option(
            "--retain-age",
            metavar="AGE",
            help="Keep it for at most this long: a number of seconds, or an age such as 90m, 24h or 7d; 0: no limit. "
            "[default: 24h]",
        ),
    ] = None,
    frame_size: Annotated[
        str | None,
        typer.Option(
            "--frame-size",
            metavar="SIZE",
            help="The size of frames in the journal of a new data directory: 1mb, 2mb or 4mb. [default: 2mb]",
        ),
    ] = None,
    channels: Annotated[
        str | None,
        typer.Option(metavar="on|off", help="Serve channels on the HTTP port. [default: on]"),
    ] = None,
    channel_expire: Annotated[
        str | None,
        typer.Option(
            "--channel-expire",
            metavar="AGE",
            help="How long channels keep messages, and subscribers that do nothing. [default: 30m]",
        ),
    ] = None,
    channel_origins: Annotated[
        str | None,
        typer.Option(
            "--channel-origins",
            metavar="ORIGIN,...",
            help="Pages of other sites that may use channels (CORS), such as https://shop.example; *: all.",
        ),
    ] = None,
    channel_admin_token_file: Annotated[
        str | None,
        typer.Option(
            "--channel-admin-token-file",
            metavar="FILE",
            help="Allow admin calls with the token in the first line of this file. Without it, nobody may use them.",
        ),
    ] = None,
    channel_polls: Annotated[
        str | None,
        typer.Option(
            "--channel-polls", metavar="N", help="The highest number of polls of channels that wait. [default: 4000]"
        ),
    ] = None,
    channel_rules: Annotated[
        str | None,
        typer.Option(
            "--channel-rules",
            metavar="FILE",
            help="Allow only the channels in this TOML file, with their expiry, tokens and webhooks; SIGHUP reads it "
            "again.",
        ),
    ] = None,
    channel_log: Annotated[
        bool | None,
        typer.Option(
            "--channel-log/--no-channel-log",
            help="Write a line of JSON to stderr for each request to a channel. [default: no]",
        ),
    ] = None,
    replicaof: Annotated[
        str | None,
        typer.Option(
            metavar="HOST PORT",
            help="Follow this server (or HOST:PORT), unless the data directory says which role it had last.",
        ),
    ] = None,
    masterauth_file: Annotated[
        str | None,
        typer.Option(
            "--masterauth-file",
            metavar="FILE",
            help="The password of the leader is the first line of this file. [default: the server's own password]",
        ),
    ] = None,
    min_replicas_to_write: Annotated[
        str | None,
        typer.Option(
            "--min-replicas-to-write",
            metavar="N",
            help="Refuse writes while fewer followers than this are connected; 0: never. [default: 0]",
        ),
    ] = None,
    min_replicas_max_lag: Annotated[
        str | None,
        typer.Option(
            "--min-replicas-max-lag",
            metavar="SECONDS",
            help="Count only followers that were heard of within this time; 0: never refuse writes. [default: 10]",
        ),
    ] = None,
    replica_priority: Annotated[
        str | None,
        typer.Option(
            "--replica-priority",
            metavar="N",
            help="Sentinels promote the follower with the lowest number; 0: never this one. [default: 100]",
        ),
    ] = None,
    replica_announce_ip: Annotated[
        str | None,
        typer.Option(
            "--replica-announce-ip",
            metavar="HOST",
            help="The address that a follower gives as its own, if others see another than they can connect to.",
        ),
    ] = None,
    replica_announce_port: Annotated[
        str | None,
        typer.Option(
            "--replica-announce-port",
            metavar="PORT",
            help="The port that a follower gives as its own; 0: the port for Redis clients. [default: 0]",
        ),
    ] = None,
    replica_announced: Annotated[
        bool | None,
        typer.Option(
            "--replica-announced/--no-replica-announced", help="Let Sentinels know of this follower. [default: yes]"
        ),
    ] = None,
    replica_serve_stale_data: Annotated[
        bool | None,
        typer.Option(
            "--replica-serve-stale-data/--no-replica-serve-stale-data",
            help="Answer reads also while a follower has no link to its leader. [default: yes]",
        ),
    ] = None,
    hash_max_listpack_entries: Annotated[
        str | None, _bound(512, "the most fields of a hash that is a listpack")
    ] = None,
    hash_max_listpack_value: Annotated[
        str | None, _bound(64, "the most bytes of each of its fields and values")
    ] = None,
    set_max_intset_entries: Annotated[str | None, _bound(512, "the most members of a set that is an intset")] = None,
    set_max_listpack_entries: Annotated[str | None, _bound(128, "the most members of a set that is a listpack")] = None,
    set_max_listpack_value: Annotated[str | None, _bound(64, "the most bytes of each of them")] = None,
    zset_max_listpack_entries: Annotated[
        str | None, _bound(128, "the most members of a sorted set that is a listpack")
    ] = None,
    zset_max_listpack_value: Annotated[str | None, _bound(64, "the most bytes of each of them")] = None,
    list_max_listpack_size: Annotated[
        str | None, _bound(-2, "the most elements of a list that is a listpack; -1 to -5: 4 to 64 KiB")
    ] = None,
    ship_to: ShipTo = None,
    ship_keep: ShipKeep = None,
    ship_bandwidth: ShipBandwidth = None,
    ship_key_file: ShipKeyFile = None,
    local_history: LocalHistory = None,
    history_cache: HistoryCache = None,
    history_bandwidth: HistoryBandwidth = None,
    restore_from: RestoreFrom = None,
    restore_wait: RestoreWait = None,
    restore_lazy: RestoreLazy = None,
    follow_from: FollowFrom = None,
    database: DatabaseId = None,
    config: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The configuration file. [default: tidelog.toml, if there is one here]"),
    ] = None,
) -> int:
    """Serve Redis clients from a data directory.

    Prints one line when it is ready. SIGTERM or Ctrl-C stop it: what was received is answered and synced to disk.
    """
    # Before anything else is local: the options, under the names of their settings.
    flags = {name.replace("_", "-"): value for name, value in locals().items() if name != "config"}
    from tidelog.server.configuration import configure

    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="tidelog: %(message)s")
    settled = configure(flags, os.environ, config, os.path.exists)

    import uvloop

    from tidelog.server.runtime import serve as run

    uvloop.run(run(settled, lambda runtime: _say_ready(settled, runtime)))
    return FINE


def _say_ready(config: ServerConfig, runtime: Runtime) -> None:
    """The one line that says that clients can come."""
    places = []
    host = f"[{config.host}]" if ":" in config.host else config.host
    if runtime.port is not None:
        places.append(f"{'rediss' if config.tls_cert else 'redis'}://{host}:{runtime.port}")
    if runtime.http_port is not None:
        places.append(f"{'https' if config.tls_cert else 'http'}://{host}:{runtime.http_port}")
    if runtime.flight_port is not None:
        places.append(f"{'grpc+tls' if config.tls_cert else 'grpc'}://{host}:{runtime.flight_port}")
    if config.unix_socket is not None:
        places.append(f"unix:{config.unix_socket}")
    line = f"tidelog: ready on {' '.join(places)}, data in {os.path.abspath(config.data)}, pid {os.getpid()}"
    print(printable(line), flush=True)
