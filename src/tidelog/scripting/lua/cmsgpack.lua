-- MessagePack, as lua-cmsgpack 0.4 has it in Redis.
--
-- Tables nested more than 16 deep are packed as nil, as there. Unpacking nests as frames of Lua, with a bound.

local host = ...
local error, type, next, select, unpack = host.error, host.type, host.next, host.select, host.unpack
local byte, char, sub, concat = host.string.byte, host.string.char, host.string.sub, host.table.concat
local floor, huge = host.math.floor, host.math.huge
local refuse, check_string, check_integer =
  host.arguments.refuse, host.arguments.check_string, host.arguments.check_integer
local double_bytes, float_bytes = host.floats.double_bytes, host.floats.float_bytes
local double_from, float_from = host.floats.double_from, host.floats.float_from

local MAX_NESTING = 16 -- of tables when packing
local DEEPEST = 2600 -- of tables when unpacking: about where the stack of Redis's own ends
local MAX_RESULTS = 7900 -- values that one call returns

local TOO_MANY = "stack overflow (too many return values at once; use unpack_one or unpack_limit instead.)"

-- ---- Packing

local function word_bytes(word)
  return floor(word / 16777216), floor(word / 65536) % 256, floor(word / 256) % 256, word % 256
end

local function header(size, few, few_code, code_16)
  if size <= few then
    return char(few_code + size)
  elseif size <= 0xFFFF then
    return char(code_16, floor(size / 256), size % 256)
  end
  return char(code_16 + 1, word_bytes(size))
end

local function two_words(number)
  local low = number % 4294967296
  return (number - low) / 4294967296 % 4294967296, low
end

local function packed_integer(number)
  if number >= 0 then
    if number <= 127 then
      return char(number)
    elseif number <= 0xFF then
      return char(0xCC, number)
    elseif number <= 0xFFFF then
      return char(0xCD, floor(number / 256), number % 256)
    elseif number <= 0xFFFFFFFF then
      return char(0xCE, word_bytes(number))
    end
  elseif number >= -32 then
    return char(256 + number)
  elseif number >= -128 then
    return char(0xD0, 256 + number)
  elseif number >= -32768 then
    return char(0xD1, floor((65536 + number) / 256), number % 256)
  elseif number >= -2147483648 then
    return char(0xD2, word_bytes(4294967296 + number))
  end
  local high, low = two_words(number)
  return char(number < 0 and 0xD3 or 0xCF, word_bytes(high)) .. char(word_bytes(low))
end

local function packed_number(number)
  if floor(number) == number and number >= -2 ^ 63 and number < 2 ^ 63 then
    return packed_integer(number)
  end
  local bytes, stored = float_bytes(number)
  if stored == number then
    return "\202" .. bytes
  end
  return "\203" .. double_bytes(number)
end

local function is_array(value)
  local greatest, count = 0, 0
  for key in next, value do
    if type(key) ~= "number" or key <= 0 or floor(key) ~= key or key > 2147483647 then
      return false
    end
    if key > greatest then
      greatest = key
    end
    count = count + 1
  end
  return greatest == count
end

local function append(buffer, count, value, level)
  local kind = type(value)
  if kind == "string" then
    local size = #value
    if size >= 32 and size <= 0xFF then
      buffer[count + 1] = char(0xD9, size)
    else
      buffer[count + 1] = header(size, 31, 0xA0, 0xDA)
    end
    buffer[count + 2] = value
    return count + 2
  elseif kind == "number" then
    buffer[count + 1] = packed_number(value)
    return count + 1
  elseif kind == "boolean" then
    buffer[count + 1] = value and "\195" or "\194"
    return count + 1
  elseif kind ~= "table" or level == MAX_NESTING then
    buffer[count + 1] = "\192"
    return count + 1
  elseif is_array(value) then
    local length = #value
    count = count + 1
    buffer[count] = header(length, 15, 0x90, 0xDC)
    for i = 1, length do
      count = append(buffer, count, value[i], level + 1)
    end
    return count
  end
  local length = 0
  for _ in next, value do
    length = length + 1
  end
  count = count + 1
  buffer[count] = header(length, 15, 0x80, 0xDE)
  for key, element in next, value do
    count = append(buffer, count, key, level + 1)
    count = append(buffer, count, element, level + 1)
  end
  return count
end

local function pack(...)
  local values = select("#", ...)
  if values == 0 then
    refuse(1, "pack", 0, "MessagePack pack needs input.")
  end
  local buffer, count = {}, 0
  for i = 1, values do
    count = append(buffer, count, (select(i, ...)), 0)
  end
  return concat(buffer, "", 1, count)
end

-- ---- Unpacking. `frames` is how many calls of `read` there are; `error` needs it to find the script.

local function missing(frames)
  error("Missing bytes in input.", frames + 4)
end

-- The big-endian integer of `size` bytes (at most 4) after the code at `at`.
local function unsigned(text, at, size, frames)
  local a, b, c, d = byte(text, at + 1, at + size)
  if size == 1 then
    if not a then
      missing(frames + 1)
    end
    return a
  elseif size == 2 then
    if not b then
      missing(frames + 1)
    end
    return a * 256 + b
  elseif not d then
    missing(frames + 1)
  end
  return ((a * 256 + b) * 256 + c) * 256 + d
end

local read

local function read_string(text, from, size, frames)
  if from + size - 1 > #text then
    missing(frames + 1)
  end
  return sub(text, from, from + size - 1), from + size
end

local function read_array(text, at, length, frames)
  local array = {}
  for i = 1, length do
    array[i], at = read(text, at, frames + 2)
  end
  return array, at
end

local function read_map(text, at, length, frames)
  local map = {}
  for _ = 1, length do
    local key, value
    key, at = read(text, at, frames + 2)
    value, at = read(text, at, frames + 2)
    if key == nil then
      error("table index is nil", 0)
    elseif key ~= key then
      error("table index is NaN", 0)
    end
    map[key] = value
  end
  return map, at
end

local LENGTH_BYTES = { -- by code: how many bytes of length, what follows
  [0xD9] = { 1, read_string }, [0xDA] = { 2, read_string }, [0xDB] = { 4, read_string },
  [0xDC] = { 2, read_array }, [0xDD] = { 4, read_array }, [0xDE] = { 2, read_map }, [0xDF] = { 4, read_map },
}
local UNSIGNED_BYTES = { [0xCC] = 1, [0xCD] = 2, [0xCE] = 4 }
local SIGNED_BYTES = { [0xD0] = 1, [0xD1] = 2, [0xD2] = 4 }

function read(text, at, frames)
  local code = byte(text, at)
  if not code then
    missing(frames)
  elseif code < 0x80 then
    return code, at + 1
  elseif frames > 2 * DEEPEST then
    error(TOO_MANY, frames + 3)
  elseif code >= 0xE0 then
    return code - 256, at + 1
  elseif code < 0x90 then
    local value, after = read_map(text, at + 1, code - 0x80, frames)
    return value, after
  elseif code < 0xA0 then
    local value, after = read_array(text, at + 1, code - 0x90, frames)
    return value, after
  elseif code < 0xC0 then
    local value, after = read_string(text, at + 1, code - 0xA0, frames)
    return value, after
  elseif code == 0xC0 then
    return nil, at + 1
  elseif code == 0xC2 or code == 0xC3 then
    return code == 0xC3, at + 1
  end
  local size = UNSIGNED_BYTES[code]
  if size then
    return unsigned(text, at, size, frames), at + 1 + size
  end
  size = SIGNED_BYTES[code]
  if size then
    local number = unsigned(text, at, size, frames)
    local range = 256 ^ size
    return number >= range / 2 and number - range or number, at + 1 + size
  end
  local long = LENGTH_BYTES[code]
  if long then
    local length = unsigned(text, at, long[1], frames)
    local value, after = long[2](text, at + 1 + long[1], length, frames)
    return value, after
  elseif code == 0xCA then
    local a, b, c, d = byte(text, at + 1, at + 4)
    if not d then
      missing(frames)
    end
    return float_from(a, b, c, d), at + 5
  elseif code == 0xCB then
    local a, b, c, d, e, f, g, h = byte(text, at + 1, at + 8)
    if not h then
      missing(frames)
    end
    return double_from(a, b, c, d, e, f, g, h), at + 9
  elseif code == 0xCF or code == 0xD3 then
    if at + 8 > #text then
      missing(frames)
    end
    local high = unsigned(text, at, 4, frames)
    if high >= 2147483648 then -- unsigned numbers too: there they are made from C's signed ones
      high = high - 4294967296
    end
    return high * 4294967296 + unsigned(text, at + 4, 4, frames), at + 9
  end
  error("Bad data format in input.", frames + 3)
end

-- Up to `limit` values from `offset` on; the offset after them stands first, unless all was asked for.
local function unpack_some(text, limit, offset)
  if offset < 0 or limit < 0 then
    error("Invalid request to unpack with offset of " .. offset .. " and limit of " .. #text .. ".", 3)
  elseif offset > #text then
    error("Start offset " .. offset .. " greater than input length " .. #text .. ".", 3)
  end
  local read_all = limit == 0 and offset == 0
  if read_all then
    limit = huge
  end
  local results, count, at = {}, 0, offset + 1
  while at <= #text and count < limit do
    if count == MAX_RESULTS then
      error(TOO_MANY, 3)
    end
    count = count + 1
    results[count], at = read(text, at, 1)
  end
  if read_all then
    return unpack(results, 1, count)
  end
  return at > #text and -1 or at - 1, unpack(results, 1, count)
end

return {
  pack = pack,
  unpack = function(...)
    return unpack_some(check_string(1, "unpack", 1, (...), select("#", ...) == 0), 0, 0)
  end,
  unpack_one = function(...)
    local text, offset = ...
    offset = offset == nil and 0 or check_integer(1, "unpack_one", 2, offset)
    return unpack_some(check_string(1, "unpack_one", 1, text, select("#", ...) == 0), 1, offset)
  end,
  unpack_limit = function(...)
    local text, limit, offset = ...
    limit = check_integer(1, "unpack_limit", 2, limit, select("#", ...) < 2)
    offset = offset == nil and 0 or check_integer(1, "unpack_limit", 3, offset)
    return unpack_some(check_string(1, "unpack_limit", 1, text), limit, offset)
  end,
  _NAME = "cmsgpack",
  _VERSION = "lua-cmsgpack 0.4.0",
  _COPYRIGHT = "Copyright (C) 2012, Salvatore Sanfilippo",
  _DESCRIPTION = "MessagePack C implementation for Lua",
}
