"""Configuration: what counts before what, and what a bad value is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog import limits
from tidelog.address import ServerAddress
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.retention import NO_LIMIT
from tidelog.replication.options import ReplicationOptions
from tidelog.server.configuration import SETTINGS, BadConfiguration, ServerConfig, configure, read_file, with_password

ROOT = Path(__file__).resolve().parents[2]


def no_file(_path: str) -> bool:
    return False


def test_defaults() -> None:
    assert configure({}, {}, None, no_file) == ServerConfig(http_port=8399, flight_port=8499)


def test_flags_count_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "some.toml"
    file.write_text('port = 1\nhost = "::1"\nfsync = "never"\nhttp-hosts = ["A.example", "b"]\nmaxmemory = 5\n')
    environment = {"TIDELOG_PORT": "2", "TIDELOG_FSYNC": "always", "TIDELOG_UNRELATED": "x", "TIDELOG_HOST": ""}
    found = configure({"port": "3", "host": None}, environment, str(file), no_file)
    assert found == ServerConfig(
        port=3,
        host="::1",
        fsync=FsyncPolicy.ALWAYS,
        http_hosts=("a.example", "b"),
        http_port=8399,
        flight_port=8499,
        maxmemory=5,
    )


def test_the_environment_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("port = 1\n")
    (tmp_path / "b.toml").write_text("port = 2\n")
    environment = {"TIDELOG_CONFIG": str(tmp_path / "a.toml")}
    assert configure({}, environment, None, no_file).port == 1
    assert configure({}, environment, str(tmp_path / "b.toml"), no_file).port == 2


@pytest.mark.parametrize(
    ("text", "size"), [("0", 0), ("100", 100), ("1k", 1000), ("1kb", 1024), ("3MB", 3 << 20), ("2gb", 2 << 30)]
)
def test_memory(text: str, size: int) -> None:
    assert configure({"maxmemory": text}, {}, None, no_file).maxmemory == size


@pytest.mark.parametrize(
    ("text", "age_s"), [("0", None), ("90", 90), ("90s", 90), ("5m", 300), ("24H", 86_400), ("7d", 604_800)]
)
def test_what_is_retained(text: str, age_s: int | None) -> None:
    found = configure({"retain-age": text, "retain-bytes": "10gb", "frame-size": "4mb"}, {}, None, no_file)
    assert found.retain_age_us == (NO_LIMIT if age_s is None else age_s * 1_000_000)
    assert (found.retain_bytes, found.frame_bytes) == (10 << 30, 4 << 20)
    assert configure({"retain-bytes": "0"}, {}, None, no_file).retain_bytes == NO_LIMIT


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", "65536"),
        ("port", "-1"),
        ("port", "1.5"),
        ("port", ""),
        ("shards", "257"),
        ("fsync", "ALWAYS"),
        ("maxmemory", "1tb"),
        ("maxclients", "0"),
        ("timeout", "1h"),
        ("host", ""),
        ("retain-bytes", "some"),
        ("retain-age", "1w"),
        ("retain-age", "-1"),
        ("frame-size", "3mb"),
        ("frame-size", "0"),
    ],
)
def test_bad_values_name_their_origin(name: str, value: str) -> None:
    with pytest.raises(BadConfiguration, match=f"^--{name} must be"):
        configure({name: value}, {}, None, no_file)
    variable = f"TIDELOG_{name.upper().replace('-', '_')}"
    if value:
        with pytest.raises(BadConfiguration, match=f"^{variable} must be"):
            configure({}, {variable: value}, None, no_file)


def test_a_port_of_zero_is_off() -> None:
    found = configure({"port": "0", "http-port": "0", "unix-socket": "x"}, {}, None, no_file)
    assert (found.port, found.http_port, found.unix_socket) == (None, None, "x")


def test_a_port_can_be_chosen_by_the_server(tmp_path: Path) -> None:
    (tmp_path / "some.toml").write_text('flight-port = "auto"\n')
    found = configure({"port": "auto"}, {"TIDELOG_HTTP_PORT": "auto"}, str(tmp_path / "some.toml"), no_file)
    assert (found.port, found.http_port, found.flight_port) == (0, 0, 0)


@pytest.mark.parametrize(
    ("content", "password"), [(b"secret\n", b"secret"), (b"se cret\r\nmore", b"se cret"), (b"\xff", b"\xff")]
)
def test_passwords(tmp_path: Path, content: bytes, password: bytes) -> None:
    file = tmp_path / "secret"
    file.write_bytes(content)
    assert configure({"requirepass-file": str(file)}, {}, None, no_file).password == password


@pytest.mark.parametrize(("mode", "is_told"), [(0o644, True), (0o604, True), (0o640, False), (0o600, False)])
def test_a_password_that_everybody_can_read_is_told(tmp_path: Path, mode: int, is_told: bool) -> None:
    """However the file was named: by a flag, the environment, the configuration or the option of a client."""
    secret, toml = tmp_path / "the secret", tmp_path / "some.toml"
    secret.write_text("open sesame\n")
    secret.chmod(mode)
    toml.write_text(f'requirepass-file = "{secret}"\n')
    told: list[str] = []
    named = {"TIDELOG_REQUIREPASS_FILE": str(secret)}
    configure({"requirepass-file": str(secret)}, {}, None, no_file, told.append)
    configure({}, named, None, no_file, told.append)
    configure({}, {}, str(toml), no_file, told.append)
    address = ServerAddress.parse("redis://h")
    with_password(address, str(secret), {}, option="--password-file", warn=told.append)
    with_password(address, None, named, option="--password-file", warn=told.append)
    line = f"every user of this machine can read the password in {secret}: chmod 600 '{secret}'"
    assert told == ([line] * 5 if is_told else [])


@pytest.mark.parametrize("content", [b"", b"\n", b"x" * 513])
def test_bad_passwords_are_not_shown(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "secret"
    file.write_bytes(content)
    with pytest.raises(BadConfiguration, match="first line must be a password") as caught:
        configure({"requirepass-file": str(file)}, {}, None, no_file)
    assert "xxx" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("leader:6399", ("leader", 6399)),
        ("10.0.0.1 6400", ("10.0.0.1", 6400)),
        ("[::1]:6399", ("::1", 6399)),
        ("::1 6399", ("::1", 6399)),
    ],
)
def test_whom_it_follows(text: str, address: tuple[str, int]) -> None:
    assert configure({"replicaof": text}, {}, None, no_file).replicaof == address


@pytest.mark.parametrize(
    "text", ["leader", "leader:", ":6399", "leader:0", "leader:65536", "::1:6399", "a b 1", "no one"]
)
def test_whom_it_cannot_follow(text: str) -> None:
    with pytest.raises(BadConfiguration, match=r"--replicaof must be a host and a port, such as 10\.0\.0\.1:6399"):
        configure({"replicaof": text}, {}, None, no_file)


def test_replication(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of the leader\n")
    (tmp_path / "secret").chmod(0o600)
    file = tmp_path / "some.toml"
    file.write_text(
        "min-replicas-to-write = 1\nmin-replicas-max-lag = 3\nreplica-announced = 'no'\nreplica-priority = 9"
    )
    environment = {"TIDELOG_REPLICA_ANNOUNCE_IP": "h", "TIDELOG_REPLICA_PRIORITY": "0"}
    secret = str(tmp_path / "secret")
    flags = {"replica-announce-port": "7", "replica-serve-stale-data": False, "masterauth-file": secret}
    found = configure(flags, environment, str(file), no_file)
    assert found.replication == ReplicationOptions(
        announce_host="h",
        announce_port=7,
        priority=0,
        is_announced=False,
        serves_stale_data=False,
        followers_min=1,
        follower_lag_max_s=3,
    )
    assert (found.leader_password, found.config_file) == (b"of the leader", str(file))
    assert found.given_elsewhere == {*flags, "replica-announce-ip", "replica-priority"}
    assert configure({}, {}, None, no_file).replication == ReplicationOptions()


def test_the_file_in_the_checkout_shows_every_setting() -> None:
    path = ROOT / "tidelog.toml"
    assert read_file(str(path)) == {}
    shown = [line[2:] for line in path.read_text().splitlines() if line.startswith("# ") and " = " in line]
    assert sorted(line.partition(" = ")[0] for line in shown) == sorted(SETTINGS)


def test_the_file_in_the_checkout_shows_defaults(tmp_path: Path) -> None:
    lines = [line[2:] for line in (ROOT / "tidelog.toml").read_text().splitlines() if line.startswith("# ")]
    kept = [line for line in lines if line.partition(" = ")[0] in SETTINGS and " = " in line]
    examples: tuple[str, ...] = (
        "unix-socket",
        "http-hosts",
        "requirepass-file",
        "tls-cert",
        "tls-key",
        "tls-ca-cert-file",
        "channel-admin-token-file",
        "channel-rules",
    )
    examples += ("replicaof", "masterauth-file", "ship-to", "ship-key-file", "restore-from", "follow-from", "database")
    examples += ("local-history",)
    file = tmp_path / "tidelog.toml"
    file.write_text("\n".join(line for line in kept if not line.startswith(examples)))
    assert configure({}, {}, str(file), no_file) == ServerConfig(
        http_port=8399, flight_port=8499, shards=1, frame_bytes=limits.FRAME_BYTES_DEFAULT
    )


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ({"replicaof": "h:1"}, "--follow-from and --replicaof: a server follows a copy or a leader"),
        ({"restore-from": "elsewhere"}, "--follow-from and --restore-from: .* fetches its data itself"),
        ({"ship-to": "s3://bucket/copy/"}, "--follow-from and --ship-to name the same place"),
    ],
)
def test_a_server_that_follows_a_copy_has_no_other_source(flags: dict[str, str], problem: str) -> None:
    copy = {"follow-from": "s3://bucket/copy"}
    with pytest.raises(BadConfiguration, match=problem):
        configure({**copy, **flags}, {}, None, no_file)
    assert configure({**copy, "ship-to": "s3://bucket/other"}, {}, None, no_file).follow_from == "s3://bucket/copy"


def test_the_password_of_a_client_comes_from_the_file_the_url_or_the_environment(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\n")
    (tmp_path / "b").write_bytes(b"two\xff\n")
    environment = {"TIDELOG_REQUIREPASS_FILE": str(tmp_path / "b")}
    plain, with_one = ServerAddress.parse("redis://h"), ServerAddress.parse("redis://:three@h")

    def password(address: ServerAddress, file: str | None, environment: dict[str, str]) -> str | None:
        return with_password(address, file, environment, option="--password-file").password

    assert password(with_one, str(tmp_path / "a"), environment) == "one"
    assert password(with_one, None, environment) == "three"
    assert password(plain, None, environment) == "two\udcff"
    assert password(plain, None, {}) is None
    with pytest.raises(BadConfiguration, match="--password-file names none, which cannot be read"):
        password(plain, "none", environment)
    with pytest.raises(BadConfiguration, match="TIDELOG_REQUIREPASS_FILE names none, which cannot be read"):
        password(plain, None, {"TIDELOG_REQUIREPASS_FILE": "none"})


def test_sentinels_have_a_password_of_their_own(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_text(f"{name}\n")
        (tmp_path / name).chmod(0o600)
    environment = {"TIDELOG_SENTINEL_PASSWORD_FILE": str(tmp_path / "two")}
    url = "redis+sentinel://h/orders"

    def password(url: str, environment: dict[str, str]) -> str | None:
        found = with_password(ServerAddress.parse(url), None, environment, option="--password-file")
        assert found.password is None
        assert found.sentinel_password_file is None
        return found.sentinel_password

    assert password(f"{url}?sentinel_password_file={tmp_path / 'one'}", environment) == "one"
    assert password(f"{url}?sentinel_password=three", environment) == "three"
    assert password(url, environment) == "two"
    assert password(url, {}) is None
    assert password("redis://h", environment) is None, "there are no Sentinels"
    with pytest.raises(BadConfiguration, match=r"sentinel_password_file names .*/none, which cannot be read"):
        password(f"{url}?sentinel_password_file={tmp_path / 'none'}", {})
