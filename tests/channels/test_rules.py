"""Groups of channels: which one a channel is in, what that means, and what is said about mistakes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.test_tidy import CHECKOUT
from tidelog.channels.rules import ChannelRules, read_rules
from tidelog.errors import BadChannelRules, InvalidChannel

SECRET = "s" * 32
JWT = "[channels.jwt.keys]\nHS256 = ['secret']\n"
WEBHOOK = "[[channels.webhooks]]\nname = 'hook'\nurl = 'https://h/'\n"


def rules_of(text: str, folder: Path) -> ChannelRules:
    (folder / "secret").write_text(SECRET)
    return read_rules(tomllib.loads(text)["channels"], "rules.toml", str(folder))


def group(regex: str, expire: str = "30m", rest: str = "") -> str:
    return f"[[channels]]\nregex = '{regex}'\nexpire = '{expire}'\n{rest}\n"


def test_a_channel_is_in_all_groups_that_match(tmp_path: Path) -> None:
    rules = rules_of(
        group("chat-(?P<id>[0-9]+)", "1h", JWT + "[channels.jwt.claims]\nroom = '{id}'\n")
        + group("chat-.+", "2h30m", JWT + WEBHOOK)
        + group("other", "500ms500ms"),
        tmp_path,
    )
    both = rules.match("chat-7")
    assert both.expire_ms == 150 * 60_000
    assert [token.claims for token in both.tokens] == [{"room": "7"}, {}]
    assert [use.webhook.name for use in both.webhooks] == ["hook"]
    one = rules.match("chat-seven")
    assert (len(one.tokens), len(one.webhooks)) == (1, 1)
    assert rules.match("other").expire_ms == 1000
    assert rules.match("other").tokens == ()
    assert rules.match("chat-7") is both


@pytest.mark.parametrize("name", ["chat", "xchat-7", "chat-7\n", "", "-", "c" * 64, "chat-é"])
def test_a_channel_in_no_group_cannot_be(name: str, tmp_path: Path) -> None:
    rules = rules_of(group("chat-[0-9]+"), tmp_path)
    for _ in range(2):
        with pytest.raises(InvalidChannel):
            rules.match(name)


def test_without_a_configuration_every_channel_is_open() -> None:
    match = ChannelRules.for_all().match("any-Thing_1")
    assert (match.expire_ms, match.tokens, match.webhooks) == (30 * 60_000, (), ())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[[channels]]\nexpire = '1m'", "channels[1].regex: is missing"),
        ("[[channels]]\nregex = 'a'", "channels[1].expire: is missing"),
        (group("a") + group("b("), "channels[2].regex: is not a regular expression"),
        (group("a", "soon"), 'channels[1].expire: must be a duration such as "30m", "1h30m" or "500ms", 1s to 366d'),
        (group("a", "1ms"), "1s to 366d (it is '1ms')"),
        (group("a", rest="expires = 1"), "channels[1].expires: there is no such key (there are regex, expire, jwt,"),
        ("channels = 3", "rules.toml: channels: must be written as [[channels]]"),
        ("channels = []", "rules.toml: channels: must have at least one group"),
        ("channels = [3]", "rules.toml: channels[1]: must be a table"),
        (group("a", rest="jwt = 3"), "channels[1].jwt: must be a table"),
        (group("a", rest="[channels.jwt]"), "channels[1].jwt.keys: is missing"),
        (group("a", rest="[channels.jwt.keys]"), "channels[1].jwt.keys: must name at least one key file"),
        (group("a", rest="[channels.jwt.keys]\nnone = ['x']"), "channels[1].jwt.keys.none: there is no such key"),
        (group("a", rest="[channels.jwt.keys]\nHS256 = ['x']"), "jwt.keys.HS256: the file x cannot be read: No such"),
        (group("a", rest="[channels.jwt.keys]\nRS256 = ['secret']"), "the file secret must have a public key"),
        (group("a", rest=JWT + "[channels.jwt]\niss = 3"), "channels[1].jwt.iss: must be a list of 1 to 64 texts"),
        (group("a", rest=JWT + "[channels.jwt]\naud = []"), "channels[1].jwt.aud: must be a list of 1 to 64 texts"),
        (group("a", rest=JWT + "[channels.jwt]\nclock-skew = '1h'"), "jwt.clock-skew: must be a duration"),
        (group("a", rest=JWT + "[channels.jwt.claims]\nroom = '{id}'"), "jwt.claims.room: uses {id}, which"),
        (group("a", rest=JWT + "[channels.jwt.claims]\nexp = 'x'"), "jwt.claims.exp: is not compared"),
        (group("a", rest=JWT + "[channels.jwt.claims]\nroom = 7"), "jwt.claims.room: must be a text"),
        (group("a", rest=WEBHOOK + "retries = 3"), "channels[1].webhooks[1].retries: there is no such key"),
        (group("a", rest=WEBHOOK + "method = 'CONNECT'"), "webhooks[1].method: must be one of POST, PUT"),
        (group("a", rest=WEBHOOK + "timeout = '1h'"), "webhooks[1].timeout: must be a duration"),
        (group("a", rest=WEBHOOK + "body = '{x}'"), "webhooks[1].body: uses {x}, which there is not"),
        (group("a", rest=WEBHOOK + "secret-files = ['nope']"), "webhooks[1].secret-files: the file nope cannot be"),
        (group("a", rest=WEBHOOK + "allow-networks = ['x']"), "webhooks[1].allow-networks: must be networks"),
        (group("a", rest=WEBHOOK + "dead-letter = 'a b'"), "webhooks[1].dead-letter: 'a b' is not the name"),
        (group("a", rest=WEBHOOK + "[channels.webhooks.retry]\nattempts = 3"), "retry.attempts: needs dead-letter"),
        (group("a", rest=WEBHOOK + "dead-letter = 'b'"), "retry.attempts: is missing"),
        (group("a", rest=WEBHOOK + "[channels.webhooks.headers]\nHost = 'x'"), "headers.Host: cannot be set"),
        (group("a", rest=WEBHOOK + '[channels.webhooks.headers]\nX = "a\\nb"'), "headers.X: must be a text of at most"),
        (group("a", rest=WEBHOOK + "[channels.webhooks.headers]\nX = '{message.content}'"), "headers.X: uses"),
        (group("a", rest=WEBHOOK) + group("b", rest=WEBHOOK), "webhooks[1].name: rules.toml: channels[1].webhooks[1]"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_table_and_key(text: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(BadChannelRules) as caught:
        rules_of(text, tmp_path)
    assert str(caught.value).startswith("rules.toml: ")
    assert problem in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    ["ftp://h/", "https://", "https://{channel.id}.com/", "https://h:{channel.id}/", "https://u:p@h/", "https://h:x/",
     "https://h/a b", "https://h/#x", "h/x", "https://h\\@x/"],
)  # fmt: skip
def test_urls_that_are_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(BadChannelRules, match=r"webhooks\[1\]\.url: must "):
        rules_of(group("a", rest=WEBHOOK.replace("https://h/", url)), tmp_path)


def documented_keys() -> dict[str, list[str]]:
    """The first columns of the tables of the documentation that list keys, by the text before each table."""
    page = (CHECKOUT / "docs" / "channels-configuration.md").read_text()
    found = {}
    for before, rows in re.findall(r"([^\n|]*)\n\n\| key \|[^\n]*\n\|[-|]*\n((?:\|.*\n)+)", page):
        found[before] = re.findall(r"^\| `([^`]+)` \|", rows, re.MULTILINE)
    return found


def test_every_key_is_documented(tmp_path: Path) -> None:
    tables = {
        "group of channels.": group("a", rest="x = 1"),
        "`[channels.jwt]`": group("a", rest=f"{JWT}[channels.jwt]\nx = 1"),
        "remove the old one later": group("a", rest=f"{JWT}x = 1"),
        "`[[channels.webhooks]]`": group("a", rest=f"{WEBHOOK}x = 1"),
        "`[channels.webhooks.retry]`": group("a", rest=f"{WEBHOOK}[channels.webhooks.retry]\nx = 1"),
    }
    documented = documented_keys()
    for place, text in tables.items():
        with pytest.raises(BadChannelRules, match="there is no such key") as caught:
            rules_of(text, tmp_path)
        known = str(caught.value).partition("(there are ")[2].rstrip(")").split(", ")
        [listed] = [keys for before, keys in documented.items() if place in before]
        assert sorted(listed) == sorted(known)
    assert len(documented) == len(tables)


LETTERS = "dead-letter = '{}'\n[channels.webhooks.retry]\nattempts = 2\n"


def test_dead_letters_need_a_channel_and_do_not_run_in_a_circle(tmp_path: Path) -> None:
    def hook(name: str, letters: str) -> str:
        return WEBHOOK.replace("'hook'", f"'{name}'") + LETTERS.format(letters)

    rules_of(group("a", rest=hook("one", "b")) + group("b", rest=hook("two", "c")) + group("c"), tmp_path)
    with pytest.raises(BadChannelRules, match="dead-letter: the channel b is in no group"):
        rules_of(group("a", rest=hook("one", "b")), tmp_path)
    with pytest.raises(BadChannelRules, match="would come back to it"):
        rules_of(group("a", rest=hook("one", "a")), tmp_path)
    with pytest.raises(BadChannelRules, match="would come back to it"):
        rules_of(group("a", rest=hook("one", "b")) + group("b", rest=hook("two", "a")), tmp_path)
