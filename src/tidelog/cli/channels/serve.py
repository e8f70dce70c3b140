"""`tidelog channels serve`: channels over HTTP on any Redis-protocol server, until it is told to stop."""

from __future__ import annotations

import logging
import os
import sys
from typing import Annotated, Final

import typer

from tidelog.address import URL_DEFAULT, ServerAddress
from tidelog.cli.exits import FINE, complain, guarded
from tidelog.cli.output.values import printable

EPILOG: Final = """\
`tidelog serve` has the same calls on its own HTTP port. This command is for a Redis, a Redis Cluster or a Tidelog
elsewhere; several of them may run on one backend. To publish and to subscribe from the shell, use `tidelog channel`.

Examples:

  tidelog channels serve --backend redis://127.0.0.1:6379

  tidelog channels serve --backend redis+cluster://10.0.0.1:6379,10.0.0.2:6379 --confirm-replicas 1

  tidelog channels serve --host 0.0.0.0 --password-file secret.txt --http-hosts shop.example

  curl -X PUT http://127.0.0.1:8599/channel/news/subscription/polling/me"""

PORT_DEFAULT: Final = 8599


@guarded
def serve(
    backend: Annotated[
        str,
        typer.Option(
            metavar="URL",
            envvar="TIDELOG_CHANNELS_BACKEND",
            help="Where the channels are kept: redis://HOST:PORT[,HOST:PORT...], rediss:// (TLS), unix://, "
            "redis+sentinel:// or redis+cluster://.",
        ),
    ] = URL_DEFAULT,
    backend_password_file: Annotated[
        str | None,
        typer.Option(
            "--backend-password-file",
            metavar="FILE",
            help="Read the backend's password from the first line of this file. Without this option, the password in "
            "the URL is used, or the file that TIDELOG_REQUIREPASS_FILE names.",
        ),
    ] = None,
    host: Annotated[str, typer.Option(metavar="HOST", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[str, typer.Option(metavar="PORT", help="The HTTP port; auto: any that is free.")] = str(
        PORT_DEFAULT
    ),
    password_file: Annotated[
        str | None,
        typer.Option(
            "--password-file",
            metavar="FILE",
            help="Require the password in the first line of this file. Without a password, only clients on this "
            "machine are served.",
        ),
    ] = None,
    expire: Annotated[
        str,
        typer.Option(
            metavar="AGE", help="How long messages are kept, and subscribers that do nothing, such as 30m or 24h."
        ),
    ] = "30m",
    rules: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Allow only the channels in this TOML file, with their expiry, tokens and webhooks; SIGHUP reads it "
            "again. Without it, every channel may be used.",
        ),
    ] = None,
    http_hosts: Annotated[
        str,
        typer.Option(
            "--http-hosts",
            metavar="NAME,...",
            help="Host names that requests may use, besides those of the loopback interface.",
        ),
    ] = "",
    origins: Annotated[
        str,
        typer.Option(
            metavar="ORIGIN,...",
            help="Pages of other sites that may call (CORS), such as https://shop.example; *: all.",
        ),
    ] = "",
    admin_token_file: Annotated[
        str | None,
        typer.Option(
            "--admin-token-file",
            metavar="FILE",
            help="Allow admin calls with the token in the first line of this file. Without it, nobody may use them.",
        ),
    ] = None,
    polls: Annotated[
        int, typer.Option(metavar="N", min=1, max=100_000, help="The highest number of polls that wait.")
    ] = 4000,
    http_per_address: Annotated[
        int,
        typer.Option(
            "--http-per-address",
            metavar="N",
            min=1,
            help="The highest number of connections of one address other than this machine.",
        ),
    ] = 256,
    confirm_replicas: Annotated[
        int,
        typer.Option(
            "--confirm-replicas",
            metavar="N",
            min=0,
            max=100,
            help="Answer a publish only when this many replicas of the backend have the message, and a subscribe when "
            "they have the subscriber. The same number at all gateways of a backend.",
        ),
    ] = 0,
    handle_key_file: Annotated[
        str | None,
        typer.Option(
            "--handle-key-file",
            metavar="FILE",
            help="Sign receipt handles with the key in the first line of this file, of at least 16 bytes; further "
            "lines are keys of before. Without it, the backend keeps a key.",
        ),
    ] = None,
    log_requests: Annotated[
        bool, typer.Option("--log-requests", help="Write a line of JSON to stderr for each request.")
    ] = False,
    metrics_open: Annotated[
        bool, typer.Option("--metrics-open", help="Answer /metrics also without the password.")
    ] = False,
    tls_cert: Annotated[
        str | None, typer.Option("--tls-cert", metavar="FILE", help="Serve TLS with this certificate chain (PEM).")
    ] = None,
    tls_key: Annotated[str | None, typer.Option("--tls-key", metavar="FILE", help="The certificate's key.")] = None,
) -> int:
    """Serve channels over HTTP, kept in a Tidelog or any Redis.

    Prints one line when it is ready. SIGTERM or Ctrl-C stop it cleanly: polls that wait are answered.
    """
    from tidelog.server.configuration import BadConfiguration, setting_of, with_password
    from tidelog.server.setting_values import read_channel_expiry, read_names, read_origins, read_port

    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="tidelog: %(message)s")
    if (tls_cert is None) != (tls_key is None):
        raise BadConfiguration("--tls-cert and --tls-key need each other")
    address = with_password(
        ServerAddress.parse(backend, takes_settings=True, takes_cluster=True),
        backend_password_file,
        os.environ,
        option="--backend-password-file",
        warn=complain,
    )

    import uvloop

    from tidelog.channels.http.request_log import log_requests as begin_logging
    from tidelog.gateway.channels_alone import AloneConfig, serve_alone
    from tidelog.system.clock import SystemClock

    config = AloneConfig(
        address,
        host,
        setting_of("--port", read_port, port) or 0,
        password=_secret("--password-file", password_file),
        hosts=setting_of("--http-hosts", read_names, http_hosts),
        origins=setting_of("--origins", read_origins, origins),
        admin_token=_secret("--admin-token-file", admin_token_file),
        polls_max=polls,
        per_address_max=http_per_address,
        confirm_replicas=confirm_replicas,
        handle_keys=_handle_keys(handle_key_file),
        rules=rules,
        expire_ms=setting_of("--expire", read_channel_expiry, expire),
        has_open_metrics=metrics_open,
        tls_cert=tls_cert,
        tls_key=tls_key,
    )
    if log_requests:
        begin_logging()
    uvloop.run(serve_alone(config, SystemClock(), lambda bound: _say_ready(config.host, bound, address, tls_cert)))
    return FINE


def _secret(option: str, path: str | None) -> bytes | None:
    from tidelog.server.configuration import check_secrecy, setting_of
    from tidelog.server.setting_values import read_password

    if path is None:
        return None
    secret: bytes = setting_of(option, read_password, path)
    check_secrecy(path, complain)
    return secret


def _handle_keys(path: str | None) -> tuple[bytes, ...]:
    """One key a line."""
    from tidelog.server.configuration import BadConfiguration, check_secrecy

    if path is None:
        return ()
    with open(path, "rb") as file:
        keys = tuple(line for line in file.read(65536).splitlines() if line)
    check_secrecy(path, complain)
    if not keys:
        raise BadConfiguration(f"--handle-key-file names {path}, which has no key")
    return keys


def _say_ready(host: str, port: int, backend: ServerAddress, tls_cert: str | None) -> None:
    """The one line that says that clients can come."""
    shown = f"[{host}]" if ":" in host else host
    scheme = "https" if tls_cert else "http"
    print(
        printable(f"tidelog: ready on {scheme}://{shown}:{port}, channels in {backend.url}, pid {os.getpid()}"),
        flush=True,
    )
