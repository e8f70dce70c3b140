"""The description of the calls holds: schemathesis makes requests of it, good and bad, and finds no other answers."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.channels.http.gateways import ADMIN, GatewayProcess, HttpServers
from tests.integration.limited_server import COMMAND
from tests.integration.server_process import ServerProcess
from tidelog.channels.http.openapi import describe, made_page

POLL_S_MAX: Final = 0.2
"""Polls of random durations are not to wait for an hour."""
SETTINGS: Final = """
[checks]
ignored_auth.enabled = false  # without a password there is nothing to ignore, and an admin call is tested elsewhere

# A description cannot tell which handles were given out, nor how long a duration is.
[[operations]]
include-operation-id = ["acknowledge", "fetch"]
checks.positive_data_acceptance.enabled = false
"""

SCHEMATHESIS: Final = shutil.which("schemathesis", path=str(Path(sys.executable).parent))


@pytest.fixture(scope="module", params=["in a server", "alone"])
def url(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, http_servers: HttpServers
) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("openapi")
    token_file = str(http_servers.admin_file)
    started: GatewayProcess | ServerProcess
    if request.param == "alone":
        started = GatewayProcess(
            folder, http_servers.redis.url, "--admin-token-file", token_file, CHANNEL_POLL_S_MAX=POLL_S_MAX
        )
    else:
        command = [*COMMAND, json.dumps({"CHANNEL_POLL_S_MAX": POLL_S_MAX}), "serve"]
        options = ["--channel-admin-token-file", token_file]
        started = ServerProcess(folder / "data", *options, has_http=True, command=command)
    with started as process:
        yield f"http://127.0.0.1:{process.http_port}/channels/openapi.json"
        assert "this is a bug" not in process.stderr
        assert "Traceback" not in process.stderr


def run_schemathesis(folder: Path, url: str, *options: str) -> None:
    assert SCHEMATHESIS is not None
    (folder / "schemathesis.toml").write_text(SETTINGS)
    login = ["-H", f"Authorization: Bearer {ADMIN}"]
    found = subprocess.run(
        [SCHEMATHESIS, "run", url, *login, "--no-color", *options], cwd=folder, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.skipif(SCHEMATHESIS is None, reason="schemathesis is not installed")
def test_requests_that_cover_the_description(url: str, tmp_path: Path) -> None:
    run_schemathesis(tmp_path, url, "--phases", "coverage", "--seed", "1")


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.skipif(SCHEMATHESIS is None, reason="schemathesis is not installed")
@pytest.mark.parametrize("seed", range(1, 4))
def test_many_random_requests(url: str, tmp_path: Path, seed: int) -> None:
    options = ["--phases", "coverage,fuzzing,stateful", "--max-examples", "300", "--seed", str(seed)]
    run_schemathesis(tmp_path, url, *options)


def test_every_schema_that_is_named_is_there() -> None:
    described = describe()
    text = json.dumps(described)
    named = {part.partition('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert named == set(described["components"]["schemas"])


def test_the_page_loads_nothing() -> None:
    page = made_page().decode()
    assert not [word for word in ("//", "src=", "<script", "<link", "url(", "@import") if word in page]
