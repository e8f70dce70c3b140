"""FUNCTION and FCALL on Tidelog and on a real Redis, over sockets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.socket_pair import Connection

HEAD = "#!lua name=mylib\n"
LIBRARY = (
    HEAD
    + """
local calls = 0
redis.register_function("count", function(keys, args) calls = calls + 1 return {calls, keys, args} end)
"""
)
MANY = (
    HEAD
    + """
local function set(keys, args) return redis.call("SET", keys[1], args[1]) end
local function get(keys) return redis.call("GET", keys[1]) end
redis.register_function("set", set)
redis.register_function{function_name = "get", callback = get, flags = {"no-writes"}, description = "reads"}
redis.register_function{function_name = "liar", callback = set, flags = {"no-writes"}}
redis.register_function("globals", function() x = 1 end)
redis.register_function("keys", function() return KEYS end)
redis.register_function("late", function() redis.register_function("q", function() end) end)
local kept = redis
redis.register_function("kept", function() kept.register_function("q", function() end) end)
redis.register_function("kept_call", function() return kept.call("PING") end)
redis.register_function("wrong", function() local reply = redis.call("NOPE") return reply end)
redis.register_function("json", function(keys, args) return cjson.encode({keys, args, math.floor(1.5)}) end)
redis.register_function("raises", function() error("oops") end)
redis.register_function("raises_table", function() error({err = "MY oops"}) end)
"""
)


@pytest.fixture(autouse=True)
def _no_functions(link: Connection) -> Iterator[None]:
    link("FUNCTION", "FLUSH")
    yield
    link("FUNCTION", "FLUSH")


@pytest.mark.parametrize(
    "code",
    [
        "local x",
        "#!lua",
        "#!lua name=a",
        "#!lua\nlocal x",
        "#!js name=a\nlocal x",
        "#!LUA name=a\nlocal x",
        "#!lua name=a-b\nlocal x",
        "#!lua name=\nlocal x",
        "#!lua name=a name=b\nlocal x",
        "#!lua foo=a\nlocal x",
    ],
)
def test_first_lines(link: Connection, code: str) -> None:
    link("FUNCTION", "LOAD", code)


@pytest.mark.parametrize(
    "code",
    [
        "local x",
        "local x =",
        "redis.call('GET', 'x')",
        "redis.pcall('GET', 'x')",
        "redis.setresp(3)",
        "redis.log(redis.LOG_DEBUG, 'x')",
        "error('oops')",
        "math.random()",
        "x = 1",
        "return y",
        "redis.x = 1",
        "local keys = KEYS",
        "redis.register_function()",
        "redis.register_function(1)",
        "redis.register_function('f')",
        "redis.register_function('f', 1)",
        "redis.register_function(function() end, 'f')",
        "redis.register_function('f', function() end, 3)",
        "redis.register_function('f-', function() end)",
        "redis.register_function('', function() end)",
        "redis.register_function('f', function() end) redis.register_function('f', function() end)",
        "redis.register_function{function_name = 'f'}",
        "redis.register_function{callback = function() end}",
        "redis.register_function{function_name = 'f', callback = 1}",
        "redis.register_function{function_name = {}, callback = function() end}",
        "redis.register_function{function_name = 1, callback = function() end}",
        "redis.register_function{function_name = 'f', callback = function() end, foo = 1}",
        "redis.register_function{function_name = 'f', callback = function() end, [1] = 1}",
        "redis.register_function{function_name = 'f', callback = function() end, flags = 1}",
        "redis.register_function{function_name = 'f', callback = function() end, flags = {'x'}}",
        "redis.register_function{function_name = 'f', callback = function() end, flags = {1}}",
        "redis.register_function{function_name = 'f', callback = function() end, flags = {'allow-oom', 'allow-stale'}}",
        "redis.register_function{function_name = 'f', callback = function() end, description = {}}",
        "redis.register_function('f', function() end)",
    ],
)
def test_loading(link: Connection, code: str) -> None:
    link("FUNCTION", "LOAD", HEAD + code)
    link("FUNCTION", "STATS")


def test_libraries(link: Connection) -> None:
    link("FUNCTION", "LOAD", LIBRARY)
    link("FUNCTION", "LOAD", LIBRARY)
    link("FUNCTION", "LOAD", "FOO", LIBRARY)
    link("FUNCTION", "LOAD", "#!lua name=other\nredis.register_function('COUNT', function() end)")
    link("FUNCTION", "LIST")
    link("FUNCTION", "LIST", "WITHCODE")
    link("FUNCTION", "LIST", "libraryname", "my*", "withcode")
    link("FUNCTION", "LIST", "libraryname", "MY*")
    link("FUNCTION", "FLUSH", "SYNC", "x")
    for words in (["X"], ["LIBRARYNAME"], ["WITHCODE", "WITHCODE"], ["LIBRARYNAME", "z"]):
        link("FUNCTION", "LIST", *words)
    link("FCALL", "count", 1, "k", "v")
    link("FUNCTION", "LOAD", "#!lua name=other\nredis.register_function('more', function() return 1 end)")
    link("FCALL", "count", 0)
    link("FUNCTION", "DELETE", "other")
    link("FUNCTION", "DELETE", "other")
    link("FLUSHALL")
    link("FCALL", "COUNT", 0)
    link("FUNCTION", "LOAD", "REPLACE", LIBRARY)
    link("FCALL", "count", 0)
    link("FUNCTION", "KILL")
    link("FUNCTION", "FLUSH", "X")
    link("FUNCTION", "FLUSH", "SYNC")
    link("FUNCTION", "LIST")
    link("FUNCTION", "HELP")
    link("FUNCTION", "RESTORE", "x")
    link("FUNCTION", "RESTORE", "x", "FOO")
    link("FUNCTION", "RESTORE", "x", "A", "B")


def test_calls(link: Connection) -> None:
    link("FUNCTION", "LOAD", MANY)
    for words in (
        ["set", 1, "k", "v"],
        ["get", 1, "k"],
        ["liar", 1, "k", "v"],
        ["globals", 0],
        ["keys", 0],
        ["late", 0],
        ["wrong", 0],
        ["kept", 0],
        ["kept_call", 0],
        ["json", 1, "a", "b"],
        ["raises", 0],
        ["raises_table", 0],
        ["none", 0],
        ["get", 2, "a"],
        ["get", -1, "a"],
        ["get", "x", "a"],
        ["get"],
    ):
        link("FCALL", *words)
        link("FCALL_RO", *words)


def test_in_a_transaction(link: Connection) -> None:
    link("MULTI")
    link("FUNCTION", "LOAD", MANY)
    link("FCALL", "set", 1, "k", "v")
    link("FCALL_RO", "get", 1, "k")
    link("FUNCTION", "DELETE", "mylib")
    link("EXEC")
    link("FUNCTION", "LIST")


def test_not_from_scripts(link: Connection) -> None:
    link("EVAL", "return redis.pcall('FUNCTION', 'LIST')", 0)
    link("EVAL", "return redis.pcall('FCALL', 'f', 0)", 0)
