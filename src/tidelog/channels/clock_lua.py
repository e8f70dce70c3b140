"""The arithmetic of `clock.py` for scripts: the first lines of each.

A clock is read with `tonumber` and written with "%.0f": Lua's own way of writing a number has 14 digits. No
intermediate result is inexact where its value counts:

    later - earlier      up to 2^54 - 2, rounded past 2^53; it only counts whether it is past 2^53 - 1,
                         and rounding never takes a number across a power of two
    around the wrap      earlier is positive and later negative there, so that each of the two parts of the way,
                         up to LARGEST and from -LARGEST on, is below 2^53, and so is their sum
"""

from __future__ import annotations

from typing import Final

CLOCK_LUA: Final = """
local LARGEST = 9007199254740991

local function after(clock)
  if clock == LARGEST then return -LARGEST end
  return clock + 1
end

-- How many messages one clock is ahead of another; nil if it is not ahead but behind.
local function steps_between(earlier, later)
  local steps = later - earlier
  if steps >= 0 then
    if steps <= LARGEST then return steps end
    return nil
  end
  if -steps <= LARGEST then return nil end
  return (LARGEST - earlier) + (later + LARGEST) + 1
end

local function text_of(clock)
  return string.format('%.0f', clock)
end

-- The clock that a key holds; nil if there is no such key.
local function read_clock(key)
  local text = redis.call('GET', key)
  if not text then return nil end
  local clock = tonumber(text)
  if not clock or clock ~= math.floor(clock) or clock > LARGEST or clock < -LARGEST then
    error('the key ' .. key .. ' does not hold a clock')
  end
  return clock
end
"""
