"""README and `docs/` do what they say: every block of every page is run, and what it prints is what the page shows
(where Spark comes in with `--long` only).

Pages are followed by `documents.py`. The other tests here hold that it notices a page that is wrong.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.integration.documents import CHECKOUT, blocks_of, follow, is_run

PAGES: Final = [CHECKOUT / "README.md", *sorted((CHECKOUT / "docs").rglob("*.md"))]
SLOW: Final = [CHECKOUT / "docs" / name for name in ("days.md", "lake-and-views.md", "pipeline.md", "spark.md")]
"""They start Spark again and again, which takes minutes."""
UNTIL_SPARK: Final = {CHECKOUT / "docs" / "channels-and-feeds.md": "## A channel read by Spark"}
"""Where Spark comes in on a page, and the rest of it runs with `--long`: a session of its own takes half a minute."""
SHELLS: Final = frozenset({"bash", "console", "shell", "shell-session", "zsh", "py", "python3", "pycon"})
"""Other names for blocks that look as if they could be run."""


def name_of(page: Path) -> str:
    return str(page.relative_to(CHECKOUT))


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=pytest.mark.long) if page in SLOW else page for page in PAGES], ids=name_of
)
def test_page_does_what_it_says(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    text = page.read_text()
    if page in UNTIL_SPARK and not request.config.getoption("--long"):
        text, heading, _ = text.partition(UNTIL_SPARK[page])
        assert heading
    follow(text, tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_is_found(page: Path) -> None:
    text = page.read_text()
    blocks = blocks_of(text)
    assert 2 * len(blocks) == text.count("```"), "a fence that does not begin its line, or is not closed"
    assert not SHELLS.intersection(block.kind for block in blocks), "write sh or python, so that it is run"


def test_pages_have_something_to_run() -> None:
    runnable = [block for page in PAGES for block in blocks_of(page.read_text()) if is_run(block)]
    assert len([block for block in runnable if block.kind == "sh"]) >= 45
    assert len([block for block in runnable if block.kind == "python"]) >= 15


@pytest.mark.parametrize(
    "page",
    [
        "```sh\nfalse\ntrue\n```\n",
        "```sh\nfalse | true\n```\n",
        "```sh\nno-such-command\n```\n",
        "```sh\necho a\n```\n```text\nb\n```\n",
        "```sh\necho a\n```\n```text\na\n...\nb\n```\n",
        "```sh\necho a\n```\n```sh\nx=1\n```\n```text\na\n```\n",
        "```text\na\n```\n```sh\ntrue\n```\n",
        "```sh\necho >&2 warned\n```\n```text\n```\n",
        "```ruby\n1\n```\n```sh\ntrue\n```\n",
        "```toml\n[views]\n```\n",
        "```toml\n# views.toml\n```\n",
        "```python\n# one.py\nprint(1)\n```\n",
        "```sh\necho a\n```\n```toml\n# views.toml\n```\n```text\na\n```\n```sh\ncat views.toml\n```\n",
        "```conf\nport 1\n```\n",
        "```conf\n# some.conf\nport 1\n```\n",
        "```python\n1 / 0\n```\n",
        "```python\nprint(1)\n```\n```text\n2\n```\n",
        "```python\n# one.py\n1 / 0\n```\n```sh\npython one.py\n```\n",
        "```sh\ntidelog serve --data data --port none\n```\n",
        "```sh\npip install '.[no-such-extra]'\n```\n",
    ],
)
def test_what_is_not_so_is_noticed(tmp_path: Path, page: str) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        follow(page, tmp_path)


def test_what_is_so_is_fine(tmp_path: Path) -> None:
    page = """
```
a drawing
```
```python
# two.py
print("6399: 1 and", 2)
```
```sh
sleep 60 > nothing.log &
sleeper=$!
printf 'first\\nsecond\\nthird\\n'; python two.py
```
```text
first
...
...: 1 and 2
```
```sh
kill $sleeper
cat two.py; echo >&2 6399
```
```text
...
6399
```
```python
import os

here = os.listdir(".")
```
```python
print("two.py" in here)
```
```text
True
```
```conf
# other.conf
port 7000
peer 127.0.0.1 6399
```
```sh
sed -n 's/port //p' other.conf; echo 7000
```
```text
7000
7000
```
```sh
redis-cli -p 6399 ping
```
```text
PONG
```
```sh
tidelog serve --data other --port 6400 --http-port 0 --flight-port 0   # beside the first one
```
```text
tidelog: ready on redis://127.0.0.1:6400, ...
```
"""
    follow(page, tmp_path)
