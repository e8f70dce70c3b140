"""How a server is configured: flags over the environment over `tidelog.toml`.

Every setting has one row in `SETTINGS`: its name as a flag (`--http-port`), which is also its key in the file, and with
`TIDELOG_` before it in the environment (`TIDELOG_HTTP_PORT`). A value that is not good is refused with an error that
says where it came from. Secrets are never values: the configuration names the file that has one. CONFIG REWRITE writes
into the file what was changed while the server ran (`configuration_file`).
"""

from __future__ import annotations

import logging
import os
import shlex
import stat
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from tidelog import limits
from tidelog.address import PORT_DEFAULT, ServerAddress
from tidelog.engine.parameters import BadValue
from tidelog.errors import EnvironmentFault
from tidelog.journal.durability import FsyncPolicy
from tidelog.ports import NetworkAddress
from tidelog.replication.options import LAG_S_DEFAULT, PRIORITY_DEFAULT, ReplicationOptions
from tidelog.server.copy_settings import problem_of_copies
from tidelog.server.setting_values import (
    PORT_MAX,
    number_reader,
    read_address,
    read_cache_bytes,
    read_channel_expiry,
    read_frame_bytes,
    read_fsync,
    read_local_us,
    read_names,
    read_origins,
    read_password,
    read_port,
    read_retained_age_us,
    read_retained_bytes,
    read_script_memory,
    read_ship_bandwidth,
    read_switch,
    read_text,
    read_wait_us,
    read_word,
    size_reader,
)
from tidelog.types.encoding_bounds import EncodingBounds

_LOG: Final = logging.getLogger("tidelog")
FILE_DEFAULT: Final = "tidelog.toml"
ENVIRONMENT_PREFIX: Final = "TIDELOG_"
_INT_MAX: Final = 2**31 - 1
_BOUNDS: Final = EncodingBounds()
"""The defaults."""

Warn = Callable[[str], None]
"""Tells an operator what is not good, and no error."""


class BadConfiguration(EnvironmentFault):
    """A setting has a value that it cannot have; the message says where that came from."""


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """How a server runs."""

    data: str = "data"
    """The data directory."""
    host: str = "127.0.0.1"
    port: int | None = PORT_DEFAULT
    """0: any that is free; None: no TCP."""
    http_port: int | None = None
    """0: any that is free; None: no HTTP."""
    flight_port: int | None = None
    """0: any that is free; None: no Flight."""
    http_hosts: tuple[str, ...] = ()
    """Names that HTTP may be asked under, beside those of the loopback interface."""
    http_per_address: int = limits.HTTP_PER_ADDRESS_DEFAULT
    """HTTP connections of one address other than this machine."""
    metrics_open: bool = False
    """/metrics needs no password."""
    unix_socket: str | None = None
    shards: int | None = None
    """None: as many as the data directory has, and 1 if it is new."""
    fsync: FsyncPolicy = FsyncPolicy.EVERYSEC
    password: bytes | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_replication: bool = False
    """Whether the link to a leader has TLS."""
    tls_ca: str | None = None
    """The authorities that the leader's certificate must come from; None: those of the system."""
    maxmemory: int = 0
    """In bytes; 0: no limit."""
    stream_bytes_max: int = 0
    """What the entries of all streams may take; 0: any number of bytes."""
    hot_stream_bytes: int = 0
    """What entries of streams may take in memory, roughly; 0: a sixteenth of the machine's."""
    maxclients: int = limits.CLIENTS_MAX
    timeout: int = 0
    """Seconds after which a connection that says nothing is closed; 0: never."""
    snapshot_after: int = limits.SNAPSHOT_AFTER_BYTES_MIN
    """Bytes of journal after which a snapshot is made by itself, or the last one's size if that is more; 0: never."""
    retain_bytes: int = limits.RETAIN_BYTES
    """Journal that is kept although snapshots cover it, at most."""
    retain_age_us: int = limits.RETAIN_AGE_US
    """For how long it is kept, at most."""
    http_feeds: int = limits.HTTP_FEEDS_DEFAULT
    """How many feeds there may be over HTTP."""
    script_time_ms: int = limits.SCRIPT_TIME_MS_DEFAULT
    """How long a script may run; twice as long once it has written."""
    script_memory_bytes: int = limits.SCRIPT_MEMORY_BYTES_DEFAULT
    feed_checkpoint_ms: int = limits.FEED_CHECKPOINT_MS_DEFAULT
    """Between two checkpoints of a feed that says nothing about it."""
    feed_repeats: int = limits.FEED_REPEATS_DEFAULT
    """How often a reader may begin at the same place at once; 0: as often as it likes."""
    channels: bool = True
    """Whether channels are served over HTTP."""
    channel_expire_ms: int = limits.CHANNEL_EXPIRE_MS_DEFAULT
    """How long they keep messages, and subscribers that do nothing."""
    channel_origins: tuple[str, ...] = ()
    """Pages of other sites that may use them (CORS)."""
    channel_admin_token: bytes | None = None
    """None: nobody may use their admin calls."""
    channel_polls: int = limits.CHANNEL_POLLS_DEFAULT
    """How many polls may wait."""
    channel_rules: str | None = None
    """The file that says which channels there are; None: all."""
    channel_log: bool = False
    """Whether a line is logged for each request."""
    frame_bytes: int | None = None
    """None: what the data directory has, and the default if it is new."""
    replicaof: NetworkAddress | None = None
    """Whom the server follows if its data directory does not say; None: nobody."""
    leader_password: bytes | None = None
    """What it says to its leader; None: its own password."""
    announce_host: str = ""
    """What a follower says that its address is, as its leader may see another; empty: nothing."""
    announce_port: int = 0
    """0: the port that it listens on."""
    priority: int = PRIORITY_DEFAULT
    """For Sentinels, which promote the follower with the lowest; 0: never this one."""
    is_announced: bool = True
    """Whether Sentinels are told of it."""
    serves_stale_data: bool = True
    """Whether a follower that has lost its leader is read from."""
    followers_min: int = 0
    """A leader with fewer followers refuses writes."""
    follower_lag_max_s: int = LAG_S_DEFAULT
    """A follower that was not heard of for longer does not count."""
    hash_max_listpack_entries: int = _BOUNDS.hash_entries
    """These bounds are Redis's: what OBJECT ENCODING says depends on them."""
    hash_max_listpack_value: int = _BOUNDS.hash_value
    set_max_intset_entries: int = _BOUNDS.set_intset_entries
    set_max_listpack_entries: int = _BOUNDS.set_entries
    set_max_listpack_value: int = _BOUNDS.set_value
    zset_max_listpack_entries: int = _BOUNDS.zset_entries
    zset_max_listpack_value: int = _BOUNDS.zset_value
    list_max_listpack_size: int = _BOUNDS.list_size
    ship_to: str | None = None
    """The object store that a copy is kept in; None: there is no copy."""
    ship_keep_us: int = limits.SHIP_KEEP_US
    """How far back it can be restored."""
    ship_bandwidth: int = 0
    """What is uploaded a second at most; 0: any number of bytes."""
    ship_key_file: str | None = None
    """The file with the key that the copy is encrypted with; None: it is not."""
    local_history_us: int | None = None
    """Node files that are older lie only in the copy; None: all are on disk."""
    history_cache: int = limits.HISTORY_CACHE_BYTES
    """Of the disk, for what is read of them."""
    history_bandwidth: int = limits.HISTORY_BANDWIDTH
    """What is fetched back a second, in the background; 0: any number of bytes."""
    restore_from: str | None = None
    """The copy that an empty data directory is restored from."""
    restore_wait_us: int = limits.RESTORE_WAIT_US
    """For how long nobody may have shipped to it."""
    restore_lazy: bool = False
    """Node files stay in the copy at first: the server begins to serve, and they are fetched in the background."""
    follow_from: str | None = None
    """The copy that is followed, if the data directory does not say something else; None: none."""
    database: str | None = None
    """Which of the copy's databases; None: the only one."""
    config_file: str | None = field(default=None, compare=False)
    """Where settings were read from, and CONFIG REWRITE writes to; None: there is no file."""
    given_elsewhere: frozenset[str] = field(default=frozenset(), compare=False)
    """Settings of the command line and the environment, which win over the file."""

    @property
    def replication(self) -> ReplicationOptions:
        """What the server starts with; CONFIG SET may change it."""
        return ReplicationOptions(
            announce_host=self.announce_host,
            announce_port=self.announce_port,
            priority=self.priority,
            is_announced=self.is_announced,
            serves_stale_data=self.serves_stale_data,
            followers_min=self.followers_min,
            follower_lag_max_s=self.follower_lag_max_s,
        )


# --- secrets ----------------------------------------------------------------------------------------------------


def check_secrecy(path: str, warn: Warn) -> None:
    """Warn of a file with a password that everybody can read. What is no file (`/dev/fd/3`) is not looked at."""
    mode = os.stat(path).st_mode
    if stat.S_ISREG(mode) and mode & stat.S_IROTH:
        warn(f"every user of this machine can read the password in {path}: chmod 600 {shlex.quote(path)}")


def with_password(
    address: ServerAddress, file: str | None, environment: Mapping[str, str], *, option: str, warn: Warn = _LOG.warning
) -> ServerAddress:
    """The address of a server with the password that a client uses, and with that of the Sentinels if it names some.

    The first that is given counts: the file that an option names, the password in the URL, the file that the server's
    own variable names (`TIDELOG_REQUIREPASS_FILE`). `option` is the name of the option, for errors. For Sentinels it
    is what the URL says, or else the file that `TIDELOG_SENTINEL_PASSWORD_FILE` names.
    """
    address = with_sentinel_password(address, environment, warn=warn)
    variable = f"{ENVIRONMENT_PREFIX}REQUIREPASS_FILE"
    path = file or (environment.get(variable) if address.password is None else None)
    if not path:
        return address
    return replace(address, password=_password_text(option if file else variable, path, warn))


def with_sentinel_password(
    address: ServerAddress, environment: Mapping[str, str], *, warn: Warn = _LOG.warning
) -> ServerAddress:
    """The address with the password that Sentinels want to hear, if it names Sentinels."""
    if address.service is None or address.sentinel_password is not None:
        return address
    variable = f"{ENVIRONMENT_PREFIX}SENTINEL_PASSWORD_FILE"
    file = address.sentinel_password_file
    path = file or environment.get(variable)
    if not path:
        return address
    password = _password_text("sentinel_password_file" if file else variable, path, warn)
    return replace(address, sentinel_password=password, sentinel_password_file=None)


def _password_text(origin: str, path: str, warn: Warn) -> str:
    try:
        password = read_password(path)
    except BadValue as problem:
        raise BadConfiguration(f"{origin} {problem}") from None
    check_secrecy(path, warn)
    return password.decode("utf-8", "surrogateescape")


# --- the settings ----------------------------------------------------------------------------------------------


class Setting(NamedTuple):
    """One setting."""

    field: str
    """Of `ServerConfig`."""
    read: Callable[[Any], Any]


_read_bound: Final = number_reader(0, 2**63 - 1, "a number")

SETTINGS: Final[dict[str, Setting]] = {
    "host": Setting("host", read_text),
    "port": Setting("port", read_port),
    "http-port": Setting("http_port", read_port),
    "flight-port": Setting("flight_port", read_port),
    "http-hosts": Setting("http_hosts", read_names),
    "http-per-address": Setting("http_per_address", number_reader(1, 1_000_000, "a number of connections")),
    "metrics-open": Setting("metrics_open", read_switch),
    "unix-socket": Setting("unix_socket", read_text),
    "data": Setting("data", read_text),
    "shards": Setting("shards", number_reader(1, limits.SHARDS_MAX, "a number of shards")),
    "fsync": Setting("fsync", read_fsync),
    "requirepass-file": Setting("password", lambda value: read_password(read_text(value))),
    "tls-cert": Setting("tls_cert", read_text),
    "tls-key": Setting("tls_key", read_text),
    "tls-replication": Setting("tls_replication", read_switch),
    "tls-ca-cert-file": Setting("tls_ca", read_text),
    "maxmemory": Setting("maxmemory", size_reader("no limit")),
    "stream-bytes-max": Setting("stream_bytes_max", size_reader("no limit")),
    "hot-stream-bytes": Setting("hot_stream_bytes", size_reader("a sixteenth of the machine's memory")),
    "maxclients": Setting("maxclients", number_reader(1, 1_000_000, "a number of clients")),
    "timeout": Setting("timeout", number_reader(0, _INT_MAX, "a number of seconds")),
    "http-feeds": Setting("http_feeds", number_reader(0, limits.FEEDS_MAX, "a number of feeds")),
    "feed-checkpoint": Setting(
        "feed_checkpoint_ms",
        number_reader(limits.FEED_CHECKPOINT_MS_MIN, limits.FEED_CHECKPOINT_MS_MAX, "a number of milliseconds"),
    ),
    "script-time-limit": Setting(
        "script_time_ms", number_reader(1, limits.SCRIPT_TIME_MS_MAX, "a number of milliseconds")
    ),
    "script-memory-limit": Setting("script_memory_bytes", read_script_memory),
    "feed-repeats": Setting("feed_repeats", number_reader(0, limits.FEED_REPEATS_MAX, "a number of feeds")),
    "snapshot-after": Setting("snapshot_after", size_reader("never")),
    "retain-bytes": Setting("retain_bytes", read_retained_bytes),
    "retain-age": Setting("retain_age_us", read_retained_age_us),
    "frame-size": Setting("frame_bytes", read_frame_bytes),
    "channels": Setting("channels", read_switch),
    "channel-expire": Setting("channel_expire_ms", read_channel_expiry),
    "channel-origins": Setting("channel_origins", read_origins),
    "channel-admin-token-file": Setting("channel_admin_token", lambda value: read_password(read_text(value))),
    "channel-polls": Setting("channel_polls", number_reader(1, 100_000, "a number of polls")),
    "channel-rules": Setting("channel_rules", lambda value: read_text(value)),
    "channel-log": Setting("channel_log", read_switch),
    "replicaof": Setting("replicaof", read_address),
    "masterauth-file": Setting("leader_password", lambda value: read_password(read_text(value))),
    "min-replicas-to-write": Setting("followers_min", number_reader(0, _INT_MAX, "a number of followers")),
    "min-replicas-max-lag": Setting("follower_lag_max_s", number_reader(0, _INT_MAX, "a number of seconds")),
    "replica-priority": Setting("priority", number_reader(0, _INT_MAX, "a number")),
    "replica-announce-ip": Setting("announce_host", read_word),
    "replica-announce-port": Setting("announce_port", number_reader(0, PORT_MAX, "a port")),
    "replica-announced": Setting("is_announced", read_switch),
    "replica-serve-stale-data": Setting("serves_stale_data", read_switch),
    "hash-max-listpack-entries": Setting("hash_max_listpack_entries", _read_bound),
    "hash-max-listpack-value": Setting("hash_max_listpack_value", _read_bound),
    "set-max-intset-entries": Setting("set_max_intset_entries", _read_bound),
    "set-max-listpack-entries": Setting("set_max_listpack_entries", _read_bound),
    "set-max-listpack-value": Setting("set_max_listpack_value", _read_bound),
    "zset-max-listpack-entries": Setting("zset_max_listpack_entries", _read_bound),
    "zset-max-listpack-value": Setting("zset_max_listpack_value", _read_bound),
    "ship-to": Setting("ship_to", read_text),
    "ship-keep": Setting("ship_keep_us", read_retained_age_us),
    "ship-bandwidth": Setting("ship_bandwidth", read_ship_bandwidth),
    "ship-key-file": Setting("ship_key_file", read_text),
    "local-history": Setting("local_history_us", read_local_us),
    "history-cache": Setting("history_cache", read_cache_bytes),
    "history-bandwidth": Setting("history_bandwidth", size_reader("no limit")),
    "restore-from": Setting("restore_from", read_text),
    "restore-wait": Setting("restore_wait_us", read_wait_us),
    "restore-lazy": Setting("restore_lazy", read_switch),
    "follow-from": Setting("follow_from", read_text),
    "database": Setting("database", read_word),
    "list-max-listpack-size": Setting("list_max_listpack_size", number_reader(-_INT_MAX - 1, _INT_MAX, "a number")),
}
"""By the name of the flag."""

_OF_SECRETS: Final = ("requirepass-file", "masterauth-file", "channel-admin-token-file")
"""Settings that name a file with a secret."""

DEFAULTS: Final[dict[str, Any]] = {"http_port": 8399, "flight_port": 8499}
"""Of the command line, where they differ from `ServerConfig`'s."""


# --- putting the sources together -------------------------------------------------------------------------------


def configure(
    flags: Mapping[str, Any],
    environment: Mapping[str, str],
    file: str | None,
    exists: Callable[[str], bool],
    warn: Warn = _LOG.warning,
) -> ServerConfig:
    """The configuration from all sources; `flags` has those that were given, under their names."""
    named = file or environment.get(f"{ENVIRONMENT_PREFIX}CONFIG") or None
    path = named or (FILE_DEFAULT if exists(FILE_DEFAULT) else None)
    found: dict[str, tuple[str, Any]] = {}
    if path is not None:
        found.update({name: (f"{path}: {name}", value) for name, value in read_file(path).items()})
    for name in SETTINGS:
        variable = ENVIRONMENT_PREFIX + name.upper().replace("-", "_")
        if environment.get(variable):
            found[name] = variable, environment[variable]
        if flags.get(name) is not None:
            found[name] = f"--{name}", flags[name]
    values = dict(DEFAULTS)
    for name, (origin, value) in found.items():
        try:
            values[SETTINGS[name].field] = SETTINGS[name].read(value)
        except BadValue as problem:
            shown = "" if name in _OF_SECRETS else f" (it is {value!r})"
            raise BadConfiguration(f"{origin} {problem}{shown}") from None
    for name in _OF_SECRETS:
        if name in found:
            check_secrecy(found[name][1], warn)
    elsewhere = frozenset(name for name, (origin, _) in found.items() if path is None or origin != f"{path}: {name}")
    values |= {"config_file": path and os.path.abspath(path), "given_elsewhere": elsewhere}
    config = ServerConfig(**values)
    if (config.tls_cert is None) != (config.tls_key is None):
        given, missing = ("tls-cert", "tls-key") if config.tls_key is None else ("tls-key", "tls-cert")
        raise BadConfiguration(f"{found[given][0]} needs {missing} beside it")
    if config.port is None and config.unix_socket is None:
        raise BadConfiguration(f"{found['port'][0]} is 0 and there is no unix-socket: nobody could connect")
    if (conflict := problem_of_copies(config, found)) is not None:
        raise BadConfiguration(conflict)
    return config


def setting_of(option: str, read: Callable[[Any], Any], value: Any) -> Any:
    """A value as an option of another command gives it; `BadConfiguration` names the option."""
    try:
        return read(value)
    except BadValue as problem:
        raise BadConfiguration(f"{option} {problem}") from None


def read_file(path: str) -> dict[str, Any]:
    """The settings of a file."""
    try:
        with open(path, "rb") as file:
            content = tomllib.load(file)
    except OSError as error:
        raise BadConfiguration(f"{path}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadConfiguration(f"{path}: not TOML: {error}") from None
    for name in content:
        if name not in SETTINGS:
            raise BadConfiguration(f"{path}: {name}: there is no such setting (there are {', '.join(SETTINGS)})")
    return content
