"""Random commands on lists, drawn from a seed: every option, wrong words, keys of other types, keys that move and go.

Few keys and few elements, so that commands meet: a list runs empty, its first and its last element are alike, one key
is both ends of a move.
"""

from __future__ import annotations

from random import Random
from typing import Final

Words = list[str]

KEYS: Final = ("l", "l", "m", "{l}n", "text", "hash", "other", "none")
ELEMENTS: Final = ("a", "b", "c", "a", "", "7", "-1", "1.5", "x" * 70, "\x00\r\n\x7f", "y" * 9000)
SIDES: Final = ("LEFT", "RIGHT", "left", "Right")
HUGE: Final = ("9223372036854775807", "-9223372036854775808", "9223372036854775806", "-9223372036854775807")
NO_NUMBERS: Final = ("x", "", "1.5", "9223372036854775808", "-9223372036854775809", " 1", "+1", "01", "1e3")
WRONG_WORDS: Final = (*NO_NUMBERS, "LEFT", "COUNT", "0", "-1", "BEFORE", "RANK", "no key")


class ListSteps:
    """A source of commands."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def key(self) -> str:
        return self.random.choice(KEYS)

    def element(self) -> str:
        return self.random.choice(ELEMENTS)

    def elements(self) -> Words:
        random = self.random
        count = random.randint(1, 5) if random.random() < 0.97 else random.choice((60, 200))
        return [self.element() if count < 10 else str(number) for number in range(count)]

    def index(self) -> str:
        kind = self.random.random()
        if kind < 0.85:
            return str(self.random.randint(-8, 8))
        return self.random.choice(HUGE) if kind < 0.95 else self.random.choice(NO_NUMBERS)

    def count(self) -> str:
        kind = self.random.random()
        if kind < 0.85:
            return str(self.random.randint(0, 5))
        return self.random.choice(("-1", "1000", *HUGE, *NO_NUMBERS))

    def side(self) -> str:
        return self.random.choice(SIDES)

    def numbered_keys(self) -> Words:
        keys = [self.key() for _ in range(self.random.randint(1, 3))]
        return [str(len(keys)), *keys]

    def options_of_lpos(self) -> Words:
        rank = self.index().replace("-9223372036854775808", "-1")  # which Redis 7.2 refuses, and 7.0 does not
        options = [["RANK", rank], ["COUNT", self.count()], ["MAXLEN", self.count()], ["rank", "-1"]]
        chosen = self.random.sample(options, self.random.choice((0, 0, 1, 1, 2, 3)))
        return [word for option in chosen for word in option]

    def command(self) -> Words:
        """The next command; now and then one with a wrong word."""
        kind = self.random.random()
        if kind < 0.36:
            words = self.push()
        elif kind < 0.52:
            words = self.pop()
        elif kind < 0.70:
            words = self.read()
        elif kind < 0.86:
            words = self.change()
        else:
            words = self.of_keys()
        return self.spoilt(words) if self.random.random() < 0.06 else words

    def spoilt(self, words: Words) -> Words:
        """A command with a word too few, too many, or wrong."""
        words = list(words)
        kind, at = self.random.random(), self.random.randrange(1, len(words) + 1)
        if kind < 0.3 and at < len(words):
            del words[at]
        elif kind < 0.6:
            words.insert(at, self.random.choice(WRONG_WORDS))
        elif at < len(words):
            words[at] = self.random.choice(WRONG_WORDS)
        return words

    def push(self) -> Words:
        name = self.random.choice(("LPUSH", "RPUSH", "LPUSH", "RPUSH", "LPUSHX", "RPUSHX", "lPush"))
        return [name, self.key(), *self.elements()]

    def pop(self) -> Words:
        random = self.random
        choices: list[Words] = [
            [random.choice(("LPOP", "RPOP")), self.key()],
            [random.choice(("LPOP", "RPOP")), self.key(), self.count()],
            ["LMOVE", self.key(), self.key(), self.side(), self.side()],
            ["RPOPLPUSH", self.key(), self.key()],
            ["LMPOP", *self.numbered_keys(), self.side(), *random.choice(([], ["COUNT", self.count()]))],
        ]
        return random.choice(choices)

    def read(self) -> Words:
        choices: list[Words] = [
            ["LLEN", self.key()],
            ["LINDEX", self.key(), self.index()],
            ["LRANGE", self.key(), self.index(), self.index()],
            ["LRANGE", self.key(), "0", "-1"],
            ["LPOS", self.key(), self.element(), *self.options_of_lpos()],
            ["LPOS", self.key(), self.element(), *self.options_of_lpos()],
        ]
        return self.random.choice(choices)

    def change(self) -> Words:
        random = self.random
        choices: list[Words] = [
            ["LSET", self.key(), self.index(), self.element()],
            ["LSET", self.key(), self.index(), self.element()],
            ["LINSERT", self.key(), random.choice(("BEFORE", "AFTER", "after")), self.element(), self.element()],
            ["LINSERT", self.key(), random.choice(("BEFORE", "AFTER", "after")), self.element(), self.element()],
            ["LREM", self.key(), self.index(), self.element()],
            ["LREM", self.key(), str(random.choice((0, 1, -1, 2, -2))), self.element()],
            ["LTRIM", self.key(), self.index(), self.index()],
            ["LTRIM", self.key(), str(random.choice((0, 1))), str(random.choice((-1, -2, 20)))],
        ]
        return random.choice(choices)

    def of_keys(self) -> Words:
        random = self.random
        choices: list[Words] = [
            ["DEL", self.key()],
            ["DEL", self.key(), self.key()],
            ["SET", "text", random.choice(ELEMENTS[:7])],
            ["SET", self.key(), "text"],
            ["HSET", "hash", "field", "value"],
            ["SADD", "other", "member"],
            ["ZADD", "other", "1", "member"],
            ["XADD", "other", "1-*", "field", "value"],
            ["EXPIRE", self.key(), random.choice(("1000", "2000", "-1"))],
            ["PERSIST", self.key()],
            ["TYPE", self.key()],
            ["EXISTS", self.key(), self.key()],
            ["TTL", "absent"],
            ["SCAN", "0", "TYPE", "list", "COUNT", "1000"],
            ["DBSIZE"],
            ["GET", self.key()],
            self._two_keys("RENAME"),
            self._two_keys("RENAMENX"),
            self._two_keys("COPY"),
            [*self._two_keys("COPY"), "REPLACE"],
            ["FLUSHDB"] if random.random() < 0.1 else ["TYPE", self.key()],
        ]
        return random.choice(choices)

    def _two_keys(self, name: str) -> Words:
        return [name, *self.random.sample(sorted(set(KEYS)), 2)]

    # --- commands that wait, where they cannot ---------------------------------------------------------------------

    def waiting(self) -> Words:
        """A command that waits, for inside of MULTI: there it does not."""
        random, seconds = self.random, self.random.choice(("0", "0", "1", "0.5", "-1", "x"))
        keys = [self.key() for _ in range(random.randint(1, 3))]
        choices: list[Words] = [
            [random.choice(("BLPOP", "BRPOP")), *keys, seconds],
            ["BLMOVE", self.key(), self.key(), self.side(), self.side(), seconds],
            ["BRPOPLPUSH", self.key(), self.key(), seconds],
            ["BLMPOP", seconds, *self.numbered_keys(), self.side(), *random.choice(([], ["COUNT", self.count()]))],
        ]
        return random.choice(choices)
