-- Checks of arguments, with the texts of Lua's C functions.
--
-- Each file in this folder is a chunk. It gets one table, `host`, with the functions it may use (the originals, which
-- scripts cannot replace), and returns closures. It touches no globals.
--
-- `level` counts functions as `error` does: 1 is the function that calls the check, 2 is its caller. It names the
-- function that a script called, so that the position in the message is the script's.

local host = ...
local error, type, tonumber, tostring = host.error, host.type, host.tonumber, host.tostring
local getinfo, format, floor, ceil = host.getinfo, host.string.format, host.math.floor, host.math.ceil

-- The name that the script called the function by. A tail call leaves no trace of it: then it is the usual name.
local function called_name(level, name)
  local frame = getinfo(level + 1, "n")
  if frame.name then
    return frame.name, frame.namewhat == "method"
  end
  local caller = getinfo(level + 2, "S")
  return (caller and caller.what == "tail") and name or "?", false
end

local function refuse(level, name, index, reason)
  local called, is_method = called_name(level + 1, name)
  if is_method then
    index = index - 1
    if index == 0 then
      error(format("calling '%s' on bad self (%s)", called, reason), level + 2)
    end
  end
  error(format("bad argument #%d to '%s' (%s)", index, called, reason), level + 2)
end

local function refuse_type(level, name, index, expected, value, is_missing)
  local got = is_missing and "no value" or type(value)
  refuse(level + 1, name, index, expected .. " expected, got " .. got)
end

local function check_string(level, name, index, value, is_missing)
  local kind = type(value)
  if kind == "string" then
    return value
  elseif kind == "number" then
    return tostring(value)
  end
  refuse_type(level + 1, name, index, "string", value, is_missing)
end

local function check_number(level, name, index, value, is_missing)
  local number = value
  if type(value) ~= "number" then
    number = type(value) == "string" and tonumber(value) or nil
    if number == nil then
      refuse_type(level + 1, name, index, "number", value, is_missing)
    end
  end
  return number
end

local function check_integer(level, name, index, value, is_missing)
  local number = check_number(level + 1, name, index, value, is_missing)
  return number < 0 and ceil(number) or floor(number)
end

return {
  refuse = refuse,
  refuse_type = refuse_type,
  check_string = check_string,
  check_number = check_number,
  check_integer = check_integer,
}
