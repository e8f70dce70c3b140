"""The atomic steps of channels, as Lua. What each does stands before it; `channels.py` gives them their arguments.

Every key of a call has the channel's hash tag. The keys of bodies are made inside the scripts, from the clock: which
they are is known only there, and they are in the same slot. A script depends on nothing but its keys and arguments:
TTLs come in as milliseconds from now, and a server replicates the effects.

A TTL is only ever raised. All calls of a channel have the same expiry, so that the latest goes furthest; but when an
expiry is configured anew, or two gateways differ, the clock must still not go before the cursors and the bodies.

A script may be ended in the middle (out of memory, out of time), and what it wrote until then stays. So a publish
first moves the clock, then writes a body, and its id last: what is missing then is a clock without a message, as of
one that has expired, or a message that a repeated publish brings once more; never an id without its message.
"""

from __future__ import annotations

import hashlib
from typing import Final

from tidelog.channels.clock_lua import CLOCK_LUA
from tidelog.channels.message import TRAIL_DIGITS

_TTL_LUA: Final = """
-- Sets a key that is to live so long from now, or longer if it would have.
local function keep(key, value, ttl_ms)
  local left_ms = redis.call('PTTL', key)
  if left_ms > tonumber(ttl_ms) then ttl_ms = text_of(left_ms) end
  redis.call('SET', key, value, 'PX', ttl_ms)
end
"""

_CURSOR_LUA: Final = """
-- The clock of the channel, the cursor of the subscriber and how far it is behind; nil if it is not to be found: one
-- of the two keys is gone, or the cursor is ahead of the clock because the clock was lost and began anew.
local function find_subscriber(clock_key, cursor_key)
  local clock, cursor = read_clock(clock_key), read_clock(cursor_key)
  if not clock or not cursor then return nil end
  local behind = steps_between(cursor, clock)
  if not behind then return nil end
  return clock, cursor, behind
end
"""


_TRAIL_LUA: Final = (
    f"""
local TRAIL_DIGITS = {TRAIL_DIGITS}
"""
    """
-- What stands where the trail of the message at a clock is (`message.py`); an empty string if there is no message.
local function trail_at(message_prefix, clock)
  return redis.call('GETRANGE', message_prefix .. text_of(clock), 10, 9 + TRAIL_DIGITS)
end

-- Whether all messages up to a clock are those that were there when its trail was read. They are taken to be if there
-- is nothing to compare: the message had no trail, or has expired.
local function is_same_trail(message_prefix, clock, trail)
  if trail == '' then return true end
  local found = trail_at(message_prefix, clock)
  return found == '' or found == trail
end
"""
)


class LuaScript:
    """The text of a script, and the name by which a server that has seen it knows it."""

    __slots__ = ("sha", "text")

    def __init__(self, *parts: str) -> None:
        self.text: Final = "".join(parts).encode()
        self.sha: Final = hashlib.sha1(self.text, usedforsecurity=False).hexdigest()


SUBSCRIBE: Final = LuaScript(
    CLOCK_LUA,
    _TTL_LUA,
    _CURSOR_LUA,
    """
-- KEYS: clock, cursor. ARGV: TTL in ms.
-- One that is there stays where it is. Any other begins after the newest message.
local clock, cursor = find_subscriber(KEYS[1], KEYS[2])
local is_new = 0
if not clock then
  clock = read_clock(KEYS[1]) or 0
  cursor = clock
  is_new = 1
end
keep(KEYS[1], text_of(clock), ARGV[1])
keep(KEYS[2], text_of(cursor), ARGV[1])
return {is_new, text_of(cursor), text_of(clock)}
""",
)

PUBLISH: Final = LuaScript(
    CLOCK_LUA,
    _TTL_LUA,
    _TRAIL_LUA,
    """
-- KEYS: clock, then the id of each message. ARGV: TTL in ms, what the keys of bodies begin with, where to wake, whether
-- replicas are waited for, then the body of each message.
-- Returns for each message its clock and whether it is new.
local newest = read_clock(KEYS[1]) or 0
local before = newest
local reply, added, known = {}, {}, {}
for index = 2, #KEYS do
  local id = KEYS[index]
  local clock = known[id] or redis.call('GET', id)
  if clock then
    reply[#reply + 1] = clock
    reply[#reply + 1] = 0
    -- WAIT promises to wait only for what its own connection wrote. The message may have come on another one, and not
    -- be replicated yet: so it is written again as it is.
    if ARGV[4] == '1' and not known[id] then redis.call('SET', id, clock, 'KEEPTTL') end
  else
    newest = after(newest)
    clock = text_of(newest)
    reply[#reply + 1] = clock
    reply[#reply + 1] = 1
    added[#added + 1] = index
  end
  known[id] = clock
end
if #added > 0 then
  keep(KEYS[1], text_of(newest), ARGV[1])
  local trail = ARGV[4] == '1' and trail_at(ARGV[2], before)
  for _, index in ipairs(added) do
    local id, body = KEYS[index], ARGV[index + 3]
    if trail then
      trail = string.sub(redis.sha1hex(trail .. ' ' .. known[id] .. ' ' .. id), 1, TRAIL_DIGITS)
      body = '{"trail":"' .. trail .. '",' .. string.sub(body, 2)
    end
    redis.call('SET', ARGV[2] .. known[id], body, 'PX', ARGV[1])
    redis.call('SET', id, known[id], 'PX', ARGV[1])
  end
  redis.call('PUBLISH', ARGV[3], text_of(newest))
end
return reply
""",
)

FETCH: Final = LuaScript(
    CLOCK_LUA,
    _CURSOR_LUA,
    _TRAIL_LUA,
    """
-- KEYS: clock, cursor. ARGV: what the keys of bodies begin with; the most messages, bytes and clocks, and how many to
-- ask for at once; perhaps a clock after which to begin, if it is ahead of the cursor, and its trail.
-- Returns nothing if there is no such subscriber, else the clock after which it began, the clock of the channel, the
-- clock up to which was looked, the trail there (empty: none), and of each message that is still there its clock and
-- its body.
local clock, cursor, behind = find_subscriber(KEYS[1], KEYS[2])
if not clock then return {} end
if ARGV[6] then
  local ahead = steps_between(cursor, tonumber(ARGV[6]))
  if ahead and ahead <= behind and is_same_trail(ARGV[1], tonumber(ARGV[6]), ARGV[7]) then
    cursor = tonumber(ARGV[6])
    behind = behind - ahead
  end
end
local messages_max, bytes_max = tonumber(ARGV[2]), tonumber(ARGV[3])
local to_look = math.min(behind, tonumber(ARGV[4]))
local at_once = tonumber(ARGV[5])
local reply = {text_of(cursor), text_of(clock), '', ''}
local looked, count, bytes, is_full = cursor, 0, 0, false
local last = false
while to_look > 0 and count < messages_max and not is_full do
  local keys, clocks, ahead = {}, {}, looked
  for index = 1, math.min(at_once, to_look, messages_max - count) do
    ahead = after(ahead)
    clocks[index] = text_of(ahead)
    keys[index] = ARGV[1] .. clocks[index]
  end
  local bodies = redis.call('MGET', unpack(keys))
  for index = 1, #keys do
    local body = bodies[index]
    if body then
      if count > 0 and bytes + #body > bytes_max then
        is_full = true
        break
      end
      count = count + 1
      bytes = bytes + #body
      reply[#reply + 1] = clocks[index]
      reply[#reply + 1] = body
    end
    last = body
    looked = after(looked)
    to_look = to_look - 1
  end
end
reply[3] = text_of(looked)
if last then reply[4] = string.match(last, '^{"trail":"(%x+)",') or '' end
return reply
""",
)

ACKNOWLEDGE: Final = LuaScript(
    CLOCK_LUA,
    _TTL_LUA,
    _CURSOR_LUA,
    _TRAIL_LUA,
    """
-- KEYS: clock, cursor. ARGV: TTL in ms, the clock of the handle, its trail, what the keys of bodies begin with.
-- Returns nothing if there is no such subscriber, or only the clock if the handle is beyond it or for messages that are
-- not there any more, else whether the cursor has moved and where it is. A handle behind the cursor moves nothing, but
-- its subscriber lives.
local clock, cursor = find_subscriber(KEYS[1], KEYS[2])
if not clock then return {} end
local acknowledged = tonumber(ARGV[2])
if not steps_between(acknowledged, clock) then return {text_of(clock)} end
local forward = steps_between(cursor, acknowledged) or 0
if forward > 0 then
  if not is_same_trail(ARGV[4], acknowledged, ARGV[3]) then return {text_of(clock)} end
  cursor = acknowledged
end
keep(KEYS[1], text_of(clock), ARGV[1])
keep(KEYS[2], text_of(cursor), ARGV[1])
return {forward > 0 and 1 or 0, text_of(cursor)}
""",
)

KEEP: Final = LuaScript(
    CLOCK_LUA,
    _TTL_LUA,
    _CURSOR_LUA,
    """
-- KEYS: clock, cursor. ARGV: TTL in ms.
-- A subscriber lives on, and so does its channel. Returns whether there is one: none is made.
local clock, cursor = find_subscriber(KEYS[1], KEYS[2])
if not clock then return 0 end
keep(KEYS[1], text_of(clock), ARGV[1])
keep(KEYS[2], text_of(cursor), ARGV[1])
return 1
""",
)
