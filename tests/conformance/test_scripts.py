"""Scripts on Tidelog and on a real Redis, over sockets: replies, errors and what they leave behind."""

from __future__ import annotations

import hashlib

import pytest

from tests.conformance.socket_pair import Both, Connection

# --- values -----------------------------------------------------------------------------------------------------

VALUES = [
    "return nil",
    "return",
    "return 1",
    "return 1.99",
    "return -1.99",
    "return 2^53 + 2",
    "return 2^63",
    "return -2^63",
    "return 1e100",
    "return 0/0",
    "return 'text'",
    "return ''",
    "return 'a\\0b\\r\\nc'",
    "return true",
    "return false",
    "return {}",
    "return {1, 2, 'x', {3, {4}}}",
    "return {1, nil, 3}",
    "return {1, false, true, 4}",
    "return {nil}",
    "return {x = 1}",
    "return {1, x = 2}",
    "return {[1] = 'a', [3] = 'c'}",
    "return {ok = 'fine'}",
    "return {ok = 'two\\r\\nlines'}",
    "return {ok = 1}",
    "return {err = 'MY error'}",
    "return {err = 'two\\r\\nlines'}",
    "return {err = 1}",
    "return {ok = 'fine', err = 'ERR both'}",
    "return {{ok = 'fine'}, {err = 'ERR no'}}",
    "return {double = 3.5}",
    "return {double = 3}",
    "return {double = 0.1}",
    "return {double = 1/0}",
    "return {double = -1/0}",
    "return {double = 'x'}",
    "return {map = {a = 1}}",
    "return {map = {}}",
    "return {map = 1}",
    "return {map = {[1] = {map = {b = false}}}}",
    "return {set = {a = true}}",
    "return {set = {}}",
    "return {big_number = '1234567890123456789012345678901234567890'}",
    "return {big_number = 12}",
    "return {verbatim_string = {string = 'text', format = 'txt'}}",
    "return {verbatim_string = {string = 'text'}}",
    "return {verbatim_string = {string = 'text', format = 'markdown'}}",
    "return print == nil",
    "return redis.call",
    "return coroutine.create(function() end)",
    "return setmetatable({}, {__index = function() return 7 end})",
    "redis.setresp(3) return true",
    "redis.setresp(3) return false",
    "redis.setresp(3) return {true, false, {map = {a = true}}}",
    "redis.setresp(3) return nil",
    "redis.setresp(3) redis.setresp(2) return true",
    "return redis.status_reply('FINE')",
    "return redis.error_reply('ONE two three')",
    "return redis.error_reply('-ONE two')",
    "return redis.error_reply('ONE')",
    "return redis.status_reply()",
    "return redis.error_reply(1)",
]


@pytest.mark.parametrize("script", VALUES)
def test_what_a_script_returns(link: Connection, script: str) -> None:
    if script == "return print == nil":
        script = "return rawget(_G, 'print') == nil"
    link("EVAL", script, 0)


REPLIES = [
    ("GET", "none"),
    ("GET", "s"),
    ("SET", "s", "new"),
    ("SET", "s", "x", "NX"),
    ("INCR", "n"),
    ("INCR", "s"),
    ("STRLEN", "s"),
    ("MGET", "s", "none", "n"),
    ("HGETALL", "h"),
    ("HGETALL", "none"),
    ("HMGET", "h", "f", "none"),
    ("SMEMBERS", "set"),
    ("SISMEMBER", "set", "m"),
    ("ZSCORE", "z", "m"),
    ("ZSCORE", "z", "none"),
    ("ZRANGE", "z", "0", "-1", "WITHSCORES"),
    ("ZMSCORE", "z", "m", "none"),
    ("ZPOPMIN", "z"),
    ("LRANGE", "l", "0", "-1"),
    ("LPOP", "l"),
    ("LPOP", "none"),
    ("XADD", "x", "1-1", "f", "v"),
    ("XRANGE", "x", "-", "+"),
    ("TYPE", "s"),
    ("TTL", "s"),
    ("KEYS", "nothing*"),
    ("EXISTS", "s", "s", "none"),
    ("PING",),
    ("PING", "x"),
    ("ECHO", "x"),
    ("SELECT", "3"),
    ("SELECT", "99"),
    ("DBSIZE",),
    ("PUBLISH", "news", "hi"),
    ("OBJECT", "ENCODING", "n"),
    ("COMMAND", "COUNT", "x"),
]


@pytest.mark.parametrize("command", REPLIES, ids=" ".join)
@pytest.mark.parametrize("resp", [2, 3])
def test_what_a_script_is_told(link: Connection, command: tuple[str, ...], resp: int) -> None:
    for setup in [
        "SET s text",
        "SET n 5",
        "HSET h f 1",
        "SADD set m",
        "ZADD z 1.5 m",
        "RPUSH l a b c",
        "XADD x 0-1 a b",
    ]:
        link(*setup.split())
    kinds = f"""
        redis.setresp({resp})
        local function show(v)
            if type(v) ~= 'table' then return type(v) .. ':' .. tostring(v) end
            local parts = {{}}
            for k, each in pairs(v) do parts[#parts + 1] = tostring(k) .. '=' .. show(each) end
            table.sort(parts)
            return '{{' .. table.concat(parts, ',') .. '}}'
        end
        return show(redis.pcall(unpack(ARGV)))
    """
    link("EVAL", kinds, 0, *command)
    link("EVAL", f"redis.setresp({resp}) return redis.call(unpack(ARGV))", 0, *command)
    link("EVAL", f"redis.setresp({resp}) return {{redis.pcall(unpack(ARGV))}}", 0, *command)


NUMBERS = [
    "1",
    "-3.0",
    "1.5",
    "0.1",
    "2^53 + 2",
    "2^63",
    "-2^63",
    "1e15",
    "1e16",
    "1e300",
    "-0.5",
    "1/3",
    "1/0",
    "-1/0",
]


@pytest.mark.parametrize("number", NUMBERS)
def test_numbers_as_arguments(link: Connection, number: str) -> None:
    link("EVAL", f"return redis.call('ECHO', {number})", 0)
    link("EVAL", f"return {{tostring({number}), {number} .. ''}}", 0)


def test_keys_and_values(link: Connection) -> None:
    for count, words in ((0, ""), (1, "a"), (2, "a b"), (1, "a b c"), (0, "a b"), (2, "a b c d e")):
        link("EVAL", "return {KEYS, ARGV, #KEYS, #ARGV}", count, *words.split())
    link("EVAL", "KEYS[1] = 'x' ARGV = nil return KEYS", 1, "k")
    for wrong in (["x"], ["-1"], ["2", "a"], ["1.5"], [""], []):
        link("EVAL", "return 1", *wrong)
        link("EVALSHA", "x" * 40, *wrong)
        link("EVAL_RO", "(", *wrong)


# --- errors -----------------------------------------------------------------------------------------------------

ERRORS = [
    "return (",
    "syntax error",
    "return 'open",
    "local a = 1\nlocal b = = 2",
    "error('boom')",
    "error('boom', 0)",
    "error('boom', 2)",
    "error({err = 'MY own'})",
    "error({err = 'MY own', extra = 1})",
    "error()",
    "error(nil)",
    "error(7)",
    "\n\nerror('on the third line')",
    "local function f() error('inside') end\nf()",
    "local t = nil\nreturn t.x",
    "return 1 + {}",
    "return #5",
    "return {} .. 'x'",
    "return {} < {}",
    "return foo",
    "\nlocal x = foo.bar",
    "foo = 1",
    "function foo() end",
    "_G.foo = 1",
    "redis.call = 1",
    "string.x = 1",
    "rawset(_G, 'x', 1)",
    "setmetatable(_G, {})",
    "getmetatable('').__index = nil",
    "redis.call('nosuch')",
    "return redis.call('nosuch')",
    "\n\nreturn redis.call('nosuch')",
    "redis.call('get')",
    "redis.call('get', 'a', 'b')",
    "redis.call('config')",
    "redis.call('config', 'nosuch')",
    "redis.call('client')",
    "redis.call('subscribe', 'x')",
    "redis.call('multi')",
    "redis.call('eval', 'return 1', 0)",
    "redis.call('get', {})",
    "redis.call('get', nil)",
    "redis.call('get', true)",
    "redis.call({})",
    "redis.call('set', 's', 'x') redis.call('incr', 's')",
    "redis.call('set', 's', 'x')\nlocal function f()\n  return redis.call('lpush', 's', 1)\nend\nreturn f()",
    "return redis.pcall('nosuch')",
    "return redis.pcall('incr', 's', 1)",
    "return {redis.pcall('nosuch')}",
    "local ok, e = pcall(redis.call, 'nosuch') return {tostring(ok), type(e), e}",
    "local ok, e = pcall(error, {err = 'x'}) return {tostring(ok), e}",
    "local ok, e = pcall(error, {}) return {tostring(ok), type(e)}",
    "local ok, e = pcall(error) return {tostring(ok), tostring(e)}",
    "local ok, e = pcall(function() error('inside') end) return e",
    "local ok, e = xpcall(function() error('inside') end, function(e) return 'handled ' .. e end) return e",
    "local e = redis.pcall('nosuch') return {e.err, tostring(e.ok)}",
    "local e = redis.pcall('nosuch') error(e)",
    "return assert(false, 'no')",
    "return assert(nil)",
    "return tostring(nil) .. tostring(true) .. tostring(1e15) .. tostring(2^63) .. tostring(0.1)",
    "return redis.sha1hex()",
    "return redis.sha1hex('')",
    "return redis.sha1hex(12)",
    "redis.log()",
    "redis.log(1)",
    "redis.log('x', 'y')",
    "redis.log(9, 'y')",
    "redis.setresp()",
    "redis.setresp(4)",
    "redis.set_repl(99)",
    "redis.set_repl(redis.REPL_ALL)",
    "redis.set_repl()",
    "return {redis.LOG_DEBUG, redis.LOG_VERBOSE, redis.LOG_NOTICE, redis.LOG_WARNING}",
    "return {redis.REPL_ALL, redis.REPL_AOF, redis.REPL_SLAVE, redis.REPL_REPLICA, redis.REPL_NONE}",
    "return tostring(redis.replicate_commands())",
    "return tostring(redis.breakpoint())",
    "return redis.acl_check_cmd('get', 'x')",
    "return redis.acl_check_cmd('nosuch')",
    "return redis.acl_check_cmd('config', 'get')",
    "local function f() return 1 + f() end return f()",
    "local c = coroutine.create(function(a) local b = coroutine.yield(a + 1) error('in it ' .. b) end)"
    " local _, x = coroutine.resume(c, 1) local ok, e = coroutine.resume(c, 'two') return {x, tostring(ok), e}",
    "coroutine.wrap(function() error('in it') end)()",
    "return {loadstring('return 1 + 1')(), tostring(loadstring('('))}",
    "local parts = {'return', ' 7'} return load(function() return table.remove(parts, 1) end)()",
    "return tostring(pcall(loadstring('x = 1')))",
    "local t = {} for k in pairs(redis) do t[#t + 1] = k end table.sort(t) return t",
    "local t = {} for k in pairs(math) do t[#t + 1] = k end table.sort(t) return t",
    "local t = {} for k in pairs(table) do t[#t + 1] = k end table.sort(t) return t",
    "local t = {} for k in pairs(coroutine) do t[#t + 1] = k end table.sort(t) return t",
    "return {type(next), type(rawget), type(rawset), type(select), type(unpack), type(load), type(gcinfo)}",
    "return {rawget(redis, 'LOG_WARNING'), tostring(rawequal(redis, redis)), tostring(getmetatable(redis))}",
    "math.randomseed(42) return {tostring(math.random()), math.random(10), math.random(5, 1000000)}",
    "math.randomseed(-1) return {tostring(math.random()), tostring(math.random())}",
    "return ('%5.2f|%s|%d|%q|%x'):format(1.5, 'x', 42, 'a\"b', 255)",
    "return ('abc'):upper() .. ('ABC'):lower() .. ('abc'):rep(3) .. ('abc'):reverse() .. ('abc'):sub(2)",
    "return {string.byte('abc', 1, -1)}",
    "return {('key=value'):match('(%w+)=(%w+)')}",
    "local t = {5, 2, 8, 1} table.sort(t) table.insert(t, 9) table.insert(t, 1, 0) table.remove(t, 2) return t",
    "local t = {5, 2, 8, 1} table.sort(t, function(a, b) return a > b end) return table.concat(t, ',', 2, 3)",
    "return {select('#', 1, nil, 3), (select(2, 'a', 'b', 'c')), unpack({1, 2, 3}, 2)}",
    "return table.concat({1, {}, 3})",
    "local t = {} for i = 1, 300 do t[i] = (i * 7) % 300 end table.sort(t) return {t[1], t[2], t[300]}",
]


@pytest.mark.parametrize("script", ERRORS)
def test_errors_and_the_language(link: Connection, script: str) -> None:
    link("EVAL", script, 0)


@pytest.mark.parametrize(
    "script",
    [
        "#!lua\nreturn 1",
        "#!lua flags=no-writes\nreturn redis.call('set', 'a', 'b')",
        "#!lua flags=no-writes\nreturn redis.call('get', 'a')",
        "#!lua flags=no-writes,allow-oom,allow-stale,no-cluster,allow-cross-slot-keys\nreturn 7",
        "#!lua flags=\nreturn 7",
        "#!lua flags=x\nreturn 1",
        "#!lua name=x\nreturn 1",
        "#!lua\nerror('on line two')",
        "#!py\nreturn 1",
        "#!lua",
        "#!\nreturn 1",
    ],
)
def test_the_first_line(link: Connection, script: str) -> None:
    for command in ("EVAL", "EVAL_RO"):
        link(command, script, 0)
    link("SCRIPT", "LOAD", script)
    link("EVALSHA", hashlib.sha1(script.encode()).hexdigest(), 0)
    link("EVALSHA_RO", hashlib.sha1(script.encode()).hexdigest(), 0)


# --- the cache --------------------------------------------------------------------------------------------------


def test_the_cache(link: Connection) -> None:
    script = "return {KEYS[1], ARGV[1]}"
    sha = hashlib.sha1(script.encode()).hexdigest()
    link("SCRIPT", "FLUSH")
    link("EVALSHA", sha, 1, "k", "v")
    link("SCRIPT", "EXISTS", sha, "x")
    link("SCRIPT", "LOAD", script)
    link("SCRIPT", "EXISTS", sha, sha.upper(), "x")
    link("EVALSHA", sha, 1, "k", "v")
    link("EVALSHA", sha.upper(), 1, "k", "v")
    link("EVALSHA_RO", sha, 1, "k", "v")
    link("SCRIPT", "FLUSH", "ASYNC")
    link("EVALSHA", sha, 1, "k", "v")
    link("EVAL", script, 1, "k", "v")
    link("EVALSHA", sha, 1, "k", "v")
    link("SCRIPT", "FLUSH", "SYNC")
    link("SCRIPT", "EXISTS", sha)
    for words in ("FLUSH x", "FLUSH ASYNC x", "EXISTS", "LOAD", "LOAD a b", "KILL", "KILL x", "NOSUCH", "", "HELP"):
        link("SCRIPT", *words.split())
    link("SCRIPT", "LOAD", "return (")
    link("SCRIPT", "DEBUG", "NO")
    link("SCRIPT", "DEBUG", "x")
    link("COMMAND", "GETKEYS", "EVAL", "return 1", 2, "a", "b", "c")
    link("COMMAND", "GETKEYS", "EVALSHA", "x", 1, "a")
    link("COMMAND", "GETKEYS", "EVAL", "return 1", 0)


# --- what a script does -----------------------------------------------------------------------------------------


def test_effects(both: Both, link: Connection) -> None:
    other = both.connect()
    link("EVAL", "redis.call('SET', KEYS[1], ARGV[1]) return redis.call('INCRBY', KEYS[1], 5)", 1, "n", 7)
    link("EVAL", "for i = 1, 10 do redis.call('RPUSH', 'l', i) end return redis.call('LRANGE', 'l', 0, -1)", 0)
    link("EVAL", "redis.call('SET', 'a', 1) error('and stop')", 0)
    other("GET", "a")
    link("EVAL", "redis.call('SET', 'b', 1) redis.call('INCR', 'l')", 0)
    other("MGET", "n", "a", "b")
    link("EVAL_RO", "return redis.call('SET', 'c', 1)", 0)
    link("EVAL_RO", "return redis.call('GET', 'a')", 0)
    link("EVAL_RO", "return redis.pcall('DEL', 'a')", 0)
    other("EXISTS", "a", "c")
    link("EVAL", "redis.call('SELECT', 5) redis.call('SET', 'five', 1) return redis.call('DBSIZE')", 0)
    link("EXISTS", "five")
    link("SELECT", 5)
    link("EXISTS", "five")


def test_in_a_transaction(both: Both, link: Connection) -> None:
    other = both.connect()
    link("WATCH", "w")
    link("MULTI")
    link("SET", "a", 1)
    link("EVAL", "return {redis.call('GET', 'a'), redis.call('INCR', 'a'), redis.call('SELECT', 3)}", 0)
    link("GET", "a")
    link("EVAL", "error('in between')", 0)
    link("EVALSHA", "x", 0)
    link("SET", "b", 1)
    link("EXEC")
    other("MGET", "a", "b")
    link("WATCH", "a")
    other("EVAL", "redis.call('SET', 'a', 9)", 0)
    link("MULTI")
    link("PING")
    link("EXEC")
    link("MULTI")
    link("EVAL", "return 1")
    link("EXEC")


def test_a_script_wakes_those_who_wait(both: Both) -> None:
    first, second, writer = both.connect(), both.connect(), both.connect()
    first.send("BLPOP", "l", 0)
    both.admin("PING")
    second.send("BLPOP", "l", 0)
    both.admin("PING")
    writer("EVAL", "redis.call('RPUSH', 'l', 'a', 'b', 'c') return redis.call('LLEN', 'l')", 0)
    first.read()
    second.read()
    writer("LRANGE", "l", 0, -1)


def test_a_pause_of_writes(both: Both) -> None:
    link = both.connect()
    link("CLIENT", "PAUSE", 300, "WRITE")
    link("EVAL_RO", "return 1", 0)
    link("EVAL", "return redis.call('SET', 'a', 1)", 0)
    link("GET", "a")


def test_time_and_chance_before_a_write(link: Connection) -> None:
    link("SET", "only", 1)
    link("EVAL", "local t = redis.call('TIME') redis.call('SET', 'when', #t) return #t", 0)
    link("EVAL", "local k = redis.call('RANDOMKEY') redis.call('SET', 'copy', 1) return type(k)", 0)


def test_no_argument_at_all(link: Connection) -> None:
    link("EVAL", "return redis.call()", 0)
    link("EVAL", "return redis.pcall().err", 0)
    link("EVAL", "redis.setresp('3') return redis.call('HGETALL', 'none').map ~= nil", 0)
    for sha in ("", "x", "x" * 40):
        link("EVALSHA", sha, "-1")


# --- differences ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["BLPOP none 0", "XREAD BLOCK 0 STREAMS x 9-9", "BZPOPMIN none 0"])
def test_differs_commands_that_wait_answer_at_once(both: Both, command: str) -> None:
    """Redis 7.0 refuses them in scripts, 7.2 answers as if their time were over."""
    link = both.connect()
    theirs, ours = link.each("EVAL", "return redis.call(unpack(ARGV))", 0, *command.split())
    assert "not allowed" in str(theirs)
    assert ours is None
