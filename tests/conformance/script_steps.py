"""Random Lua scripts, drawn from a seed: calls of commands of all types, with what came back used again, shown, or
returned in every form; errors in the script and in its commands; both protocols inside.

What a command returns to Lua is shown by a function of the script itself, with tables sorted, so that both servers are
compared by what their Lua sees and not only by what their client does. Commands that wait are not drawn: Redis 7.2
answers them at once, and 7.0 refuses them.
"""

from __future__ import annotations

from random import Random
from typing import Final, NamedTuple

from tests.conformance.list_steps import ListSteps

KEYS: Final = ("s", "t", "h", "{h}2", "u", "v", "z", "y", "l", "m", "x", "none")
MEMBERS: Final = ("a", "b", "c", "7", "-1", "", "2.5", "long " * 20)
NUMBERS: Final = ("0", "1", "-3", "10", "2.5", "1e3", "abc", "9223372036854775807")
SCORES: Final = ("1", "2", "-1.5", "inf", "0.1", "1e20", "3", "abc")

PROLOGUE: Final = """\
local function show(v)
  if type(v) ~= 'table' then return type(v) .. ':' .. tostring(v) end
  local parts = {}
  for k, each in pairs(v) do parts[#parts + 1] = tostring(k) .. '=' .. show(each) end
  table.sort(parts)
  return '{' .. table.concat(parts, ',') .. '}'
end
local function sorted(v)
  if type(v) == 'table' and (v.map or v.set) and tonumber(ARGV[1]) == 2 then return show(v) end
  if type(v) == 'table' and #v > 1 then table.sort(v) end
  return v
end
"""
_UNORDERED: Final = frozenset({"HGETALL", "HKEYS", "HVALS", "SMEMBERS", "SINTER", "SUNION", "SDIFF", "KEYS"})


class Script(NamedTuple):
    """A script with its keys and arguments."""

    body: str
    keys: list[str]
    arguments: list[str]

    def eval(self, name: str = "EVAL") -> list[str]:
        return [name, self.body, str(len(self.keys)), *self.keys, *self.arguments]


class ScriptSteps:
    """A source of scripts, and of commands around them."""

    def __init__(self, seed: int, protocol: int) -> None:
        self.random = Random(seed)
        self._protocol = protocol
        """Of the client, and the first argument of scripts: they show maps and sets where those come as arrays."""
        self.lists = ListSteps(seed)
        self.lists.random = self.random
        self._entry = 0

    # --- commands -------------------------------------------------------------------------------------------------

    def key(self, likely: str = "") -> str:
        return likely if likely and self.random.random() < 0.8 else self.random.choice(KEYS)

    def member(self) -> str:
        return self.random.choice(MEMBERS)

    def number(self) -> str:
        return self.random.choice(NUMBERS)

    def score(self) -> str:
        return self.random.choice(SCORES)

    def command(self) -> list[str]:
        """A command of any type."""
        family = self.random.choice(
            (self._string, self._hash, self._set, self._zset, self._list, self._stream, self._any)
        )
        return family()

    def _string(self) -> list[str]:
        key, other, value = self.key("s"), self.key("t"), self.member()
        return self.random.choice(
            (
                ["SET", key, value],
                ["SET", key, value, "EX", "1000"],
                ["SET", key, value, "NX"],
                ["SET", key, value, "GET"],
                ["GET", key],
                ["GETDEL", key],
                ["INCR", key],
                ["INCRBY", key, self.number()],
                ["APPEND", key, value],
                ["INCRBYFLOAT", key, self.number()],
                ["STRLEN", key],
                ["SETRANGE", key, "3", value],
                ["GETRANGE", key, "0", "2"],
                ["MSET", key, value, other, value],
                ["MGET", key, other],
                ["SETNX", other, value],
                ["GETSET", other, value],
            )
        )

    def _hash(self) -> list[str]:
        key, field, value = self.key("h"), self.member(), self.member()
        return self.random.choice(
            (
                ["HSET", key, field, value],
                ["HSET", key, field, value, "b", value],
                ["HGET", key, field],
                ["HGETALL", key],
                ["HDEL", key, field, "b"],
                ["HINCRBY", key, field, self.number()],
                ["HMGET", key, field, "b", "none"],
                ["HINCRBYFLOAT", key, field, self.number()],
                ["HLEN", key],
                ["HKEYS", key],
                ["HEXISTS", key, field],
                ["HSETNX", key, field, value],
                ["HSTRLEN", key, field],
            )
        )

    def _set(self) -> list[str]:
        key, other, member = self.key("u"), self.key("v"), self.member()
        return self.random.choice(
            (
                ["SADD", key, member, self.member()],
                ["SADD", other, member],
                ["SREM", key, member],
                ["SMEMBERS", key],
                ["SISMEMBER", key, member],
                ["SCARD", key],
                ["SMISMEMBER", key, member, "none"],
                ["SINTER", key, other],
                ["SUNIONSTORE", self.key("v"), key, other],
                ["SDIFFSTORE", self.key("v"), key, other],
                ["SMOVE", key, other, member],
                ["SINTERCARD", "2", key, other],
            )
        )

    def _zset(self) -> list[str]:
        key, other, member = self.key("z"), self.key("y"), self.member()
        return self.random.choice(
            (
                ["ZADD", key, self.score(), member],
                ["ZADD", key, self.score(), member, "5", "b"],
                ["ZADD", key, "NX", "1", member],
                ["ZADD", key, "INCR", self.score(), member],
                ["ZSCORE", key, member],
                ["ZMSCORE", key, member, "none"],
                ["ZINCRBY", key, self.score(), member],
                ["ZRANGE", key, "0", "-1"],
                ["ZRANGE", key, "0", "-1", "WITHSCORES"],
                ["ZRANK", key, member],
                ["ZREM", key, member],
                ["ZCARD", key],
                ["ZPOPMIN", key],
                ["ZPOPMAX", key, "2"],
                ["ZRANGEBYSCORE", key, "-inf", "(3"],
                ["ZUNIONSTORE", other, "2", key, other],
                ["ZCOUNT", key, "0", "5"],
                ["ZREMRANGEBYRANK", key, "0", "0"],
                ["ZRANGESTORE", other, key, "0", "1"],
            )
        )

    def _list(self) -> list[str]:
        lists = self.lists
        return self.random.choice((lists.push, lists.pop, lists.read, lists.change))()

    def _stream(self) -> list[str]:
        key = self.key("x")
        self._entry += 1
        return self.random.choice(
            (
                ["XADD", key, f"{self._entry}-*", "f", self.member()],
                ["XADD", key, f"{self._entry}-1", "f", self.member()],
                ["XADD", key, "1-1", "f", "v"],
                ["XLEN", key],
                ["XRANGE", key, "-", "+"],
                ["XREVRANGE", key, "+", "-", "COUNT", "2"],
                ["XDEL", key, f"{max(self._entry - 3, 1)}-1"],
                ["XTRIM", key, "MAXLEN", "3"],
                ["XREAD", "COUNT", "2", "STREAMS", key, "0"],
            )
        )

    def _any(self) -> list[str]:
        key, other = self.random.sample(KEYS, 2)
        return self.random.choice(
            (
                ["DEL", key, other],
                ["EXISTS", key, key, other],
                ["TYPE", key],
                ["EXPIRE", key, "1000"],
                ["PERSIST", key],
                ["EXPIRE", key, "-1"],
                ["RENAME", key, other],
                ["RENAMENX", key, other],
                ["COPY", key, other],
                ["COPY", key, other, "REPLACE"],
                ["PEXPIRETIME", "absent"],
                ["TTL", "absent"],
                ["PING"],
                ["ECHO", "x"],
                ["DBSIZE"],
                ["NOTHING", key],
                ["GET"],
                ["SET", key],
                ["MULTI"],
                ["EVAL", "return 1", "0"],
                ["SUBSCRIBE", "c"],
                ["TYPE", key, other],
            )
        )

    # --- scripts --------------------------------------------------------------------------------------------------

    def script(self) -> Script:
        random = self.random
        keys, arguments = list[str](), list[str]()
        arguments.append(str(self._protocol))
        lines = [PROLOGUE]
        if random.random() < 0.3:
            lines.append(f"redis.setresp({random.choice((2, 3, 3))})\n")
        names = []
        for number in range(random.randint(1, 7)):
            lines.append(self._statement(f"r{number}", keys, arguments))
            names.append(f"r{number}")
        lines.append(f"return {self._returned(names)}")
        return Script("".join(lines), keys, arguments)

    def _statement(self, name: str, keys: list[str], arguments: list[str]) -> str:
        random, kind = self.random, self.random.random()
        call = self._call(keys, arguments)
        if kind < 0.70:
            return f"local {name} = {call}\n"
        if kind < 0.80:
            loop = f"for i = 1, {random.randint(0, 3)} do {name}[#{name} + 1] = show({call}) end"
            return f"local {name} = {{}}\n{loop}\n"
        if kind < 0.88:
            return (
                f"local {name} = 'no'\nif redis.call('EXISTS', '{random.choice(KEYS)}') == 1 then {name} = {call} end\n"
            )
        if kind < 0.93:
            return f"local {name} = show({call})\n"
        if kind < 0.97:
            return f"local {name} = {{pcall(function() return {call} end)}}\n{name} = {name}[1]\n"
        return f"local {name} = nil\n{self._mistake()}\n"

    def _call(self, keys: list[str], arguments: list[str]) -> str:
        random, words = self.random, self.command()
        parts = [_quoted(words[0])]
        for at, word in enumerate(words[1:]):
            kind = random.random()
            if at == 0 and word in KEYS and kind < 0.5:
                keys.append(word)
                parts.append(f"KEYS[{len(keys)}]")
            elif kind < 0.4:
                arguments.append(word)
                parts.append(f"ARGV[{len(arguments)}]")
            elif kind < 0.6 and word.lstrip("-").isdigit() and len(word) < 12:
                parts.append(word)  # as a number
            elif kind > 0.995:
                parts.append(random.choice(("nil", "true", "{}", "1.5", "show")))
            else:
                parts.append(_quoted(word))
        verb = "call" if random.random() < 0.4 else "pcall"
        made = f"redis.{verb}({', '.join(parts)})"
        return f"sorted({made})" if words[0] in _UNORDERED else made

    def _mistake(self) -> str:
        return self.random.choice(
            (
                "error('mine')",
                "error({err='MINE of a table'})",
                "local n = nil + 1",
                "undefined_name()",
                "made_global = 1",
                "redis.error_reply()",
                "local t = nil; t.x = 1",
                "if true then return redis.error_reply('left') end",
                "redis.pcall('SET', 's', {})",
                "redis.setresp(4)",
                "tostring()",
                "error()",
            )
        )

    def _returned(self, names: list[str]) -> str:
        random, name = self.random, self.random.choice(names)
        shown = ", ".join(f"show({each})" for each in names)
        return random.choice(
            (
                name,
                name,
                name,
                f"{{{', '.join(names)}}}",
                f"{{{shown}}}",
                f"{{{shown}}}",
                f"{{{shown}}}",
                f"show({name})",
                f"{{1, {name}, {{{name}, 'x'}}}}",
                "3.99",
                "-0.5",
                "'text'",
                "true",
                "false",
                "nil",
                "{}",
                "{1, nil, 3}",
                "{ok='fine'}",
                "{err='MY problem'}",
                "redis.status_reply('fine')",
                "redis.error_reply('MY problem')",
                "redis.error_reply('-MY problem')",
                "{double=3.5}",
                "{map={a=1}}",
                "{set={a=true}}",
                "{big_number='123'}",
                "{verbatim_string={string='x', format='txt'}}",
                "{1.9, -1.9, 'x', true, false}",
                f"type({name})",
                "redis.sha1hex('x')",
                "2^53",
                "#ARGV + #KEYS",
                "{KEYS, ARGV}",
            )
        )


def _quoted(word: str) -> str:
    """A word as a Lua string."""
    return '"' + "".join(each if each.isalnum() or each in " -." else f"\\{ord(each):03}" for each in word) + '"'
