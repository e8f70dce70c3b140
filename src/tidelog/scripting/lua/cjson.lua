-- JSON, as lua-cjson 2.1 has it in Redis: the same settings, results and errors.
--
-- Values nest as frames of Lua, never of C, and no deeper than the settings allow. Long runs without anything special
-- are found and copied by the C functions of `string`; everything else is a loop in Lua, in which the limit on a
-- script's time holds.

local host = ...
local error, type, next, select = host.error, host.type, host.next, host.select
local tonumber, rawget, setmetatable, getmetatable = host.tonumber, host.rawget, host.setmetatable, host.getmetatable
local byte, char, find, gsub = host.string.byte, host.string.char, host.string.find, host.string.gsub
local sub, format = host.string.sub, host.string.format
local concat, floor, huge = host.table.concat, host.math.floor, host.math.huge
local refuse, check_string, check_integer =
  host.arguments.refuse, host.arguments.check_string, host.arguments.check_integer

-- JSON's null. Redis has a light userdata here, which a script cannot tell from this one.
local null = host.newproxy(false)

local NEGATIVE_NAN = huge - huge -- what processors make of it; only its text shows the sign
local INT_MAX = 2147483647
local DEEPEST = 7990 -- how far Lua's stack reaches in Redis, whatever the settings say
local WINDOW = 65536 -- bytes that one call escapes

-- All but ] to ~, 0 to [, # to ., bytes from 128 on, space and !. The class is read from its beginning: letters first.
local MUST_ESCAPE = "[^]-~0-[#-.\128-\255 !]"
local ESCAPED = {
  ["\b"] = "\\b", ["\t"] = "\\t", ["\n"] = "\\n", ["\f"] = "\\f", ["\r"] = "\\r",
  ['"'] = '\\"', ["\\"] = "\\\\", ["/"] = "\\/", ["\127"] = "\\u007f",
}
for code = 0, 31 do
  local character = char(code)
  ESCAPED[character] = ESCAPED[character] or format("\\u%04x", code)
end

local UNESCAPED = { -- by the byte after the backslash
  [34] = '"', [92] = "\\", [47] = "/", [98] = "\b", [116] = "\t", [110] = "\n", [102] = "\f", [114] = "\r",
}

local TOKEN_NAMES = {
  [123] = "T_OBJ_BEGIN", [125] = "T_OBJ_END", [91] = "T_ARR_BEGIN", [93] = "T_ARR_END", [44] = "T_COMMA",
  [58] = "T_COLON",
}

local function escaped(text)
  if #text <= WINDOW then
    return (gsub(text, MUST_ESCAPE, ESCAPED))
  end
  local pieces = {}
  for from = 1, #text, WINDOW do
    pieces[#pieces + 1] = gsub(sub(text, from, from + WINDOW - 1), MUST_ESCAPE, ESCAPED)
  end
  return concat(pieces)
end

local function utf8(code)
  if code < 0x80 then
    return char(code)
  elseif code < 0x800 then
    return char(0xC0 + floor(code / 64), 0x80 + code % 64)
  elseif code < 0x10000 then
    return char(0xE0 + floor(code / 4096), 0x80 + floor(code / 64) % 64, 0x80 + code % 64)
  end
  return char(
    0xF0 + floor(code / 262144), 0x80 + floor(code / 4096) % 64, 0x80 + floor(code / 64) % 64, 0x80 + code % 64
  )
end

-- The character that the escape at `at` stands for, and how many bytes the escape has; nil if it is not valid.
local function unicode_escape(text, at)
  if not find(text, "^%x%x%x%x", at + 2) then
    return nil
  end
  local code = tonumber(sub(text, at + 2, at + 5), 16)
  if code < 0xD800 or code > 0xDFFF then
    return utf8(code), 6
  elseif code > 0xDBFF or not find(text, "^\\u%x%x%x%x", at + 6) then
    return nil
  end
  local second = tonumber(sub(text, at + 8, at + 11), 16)
  if second < 0xDC00 or second > 0xDFFF then
    return nil
  end
  return utf8((code - 0xD800) * 1024 + second - 0xDC00 + 0x10000), 12
end

-- Each scan returns what is at a position and the position after it; or nil, what is wrong, and where.

local function scan_string(text, at)
  local from = at + 1
  local stop = find(text, '"', from, true)
  local value = stop and sub(text, from, stop - 1)
  if value and not find(value, "\\", 1, true) then
    return value, stop + 1
  end
  stop = find(text, '["\\]', from)
  local ending = stop and byte(text, stop)
  local pieces, count = {}, 0
  while ending ~= 34 do
    if ending ~= 92 then
      return nil, "unexpected end of string", stop or #text + 1
    end
    local escape = byte(text, stop + 1)
    local character, size = UNESCAPED[escape], 2
    if escape == 117 then
      character, size = unicode_escape(text, stop)
    end
    if not character then
      return nil, escape == 117 and "invalid unicode escape code" or "invalid escape code", stop
    end
    pieces[count + 1] = sub(text, from, stop - 1)
    pieces[count + 2] = character
    count = count + 2
    from = stop + size
    stop = find(text, '["\\]', from)
    ending = stop and byte(text, stop)
  end
  pieces[count + 1] = sub(text, from, stop - 1)
  return concat(pieces), stop + 1
end

-- Forms that JSON does not have, but `strtod` reads: a plus sign, leading zeros, hexadecimal, infinity, not a number.
local function is_invalid_number(text, at)
  return find(text, "^%+", at) or find(text, "^-?0[xX%d]", at) or find(text, "^-?[iI][nN][fF]", at) or
    find(text, "^-?[nN][aA][nN]", at)
end

local function scan_unusual_number(text, at, allow_invalid)
  if not allow_invalid and is_invalid_number(text, at) then
    return nil, "invalid number", at
  end
  local _, stop = find(text, "^[+-]?0[xX]%x+%.?%x*", at)
  if not stop then
    _, stop = find(text, "^[+-]?0[xX]%.%x+", at)
  end
  local _, further
  if stop then
    _, further = find(text, "^[pP][+-]?%d+", stop + 1)
  elseif find(text, "^[+-]?[iI][nN][fF]", at) then
    _, stop = find(text, "^[+-]?[iI][nN][fF][iI][nN][iI][tT][yY]", at)
    if not stop then
      _, stop = find(text, "^[+-]?...", at)
    end
    return byte(text, at) == 45 and -huge or huge, stop + 1
  elseif find(text, "^[+-]?[nN][aA][nN]", at) then
    _, stop = find(text, "^[+-]?...", at)
    _, further = find(text, "^%([%w_]*%)", stop + 1)
    return byte(text, at) == 45 and NEGATIVE_NAN or -NEGATIVE_NAN, (further or stop) + 1
  else
    _, stop = find(text, "^[+-]?%d*%.?%d*", at)
    _, further = find(text, "^[eE][+-]?%d+", stop + 1)
  end
  stop = further or stop
  local number = tonumber(sub(text, at, stop))
  if not number then
    return nil, "invalid number", at
  end
  return number, stop + 1
end

local function scan_number(text, at, allow_invalid)
  local _, stop = find(text, "^-?%d+%.?%d*", at)
  local following = stop and byte(text, stop + 1)
  if not stop or not allow_invalid or (following and following >= 65) then
    return scan_unusual_number(text, at, allow_invalid)
  end
  return tonumber(sub(text, at, stop)), stop + 1
end

-- What stands at a position, for an error: the name of a token or what is wrong with it, and where.
local function describe(text, at, allow_invalid)
  at = find(text, "[^ \t\r\n]", at) or #text + 1
  local first = byte(text, at)
  if not first then
    return "T_END", at
  elseif TOKEN_NAMES[first] then
    return TOKEN_NAMES[first], at
  elseif first == 34 then
    local value, problem, where = scan_string(text, at)
    if value then
      return "T_STRING", at
    end
    return problem, where
  elseif find(text, "^true", at) or find(text, "^false", at) then
    return "T_BOOLEAN", at
  elseif find(text, "^null", at) then
    return "T_NULL", at
  elseif find(text, "^[-%d]", at) or (allow_invalid and is_invalid_number(text, at)) then
    local number, problem = scan_number(text, at, allow_invalid)
    return number and "T_NUMBER" or problem, at
  end
  return "invalid token", at
end

local new

-- One set of functions with their settings; and a function that sets them as they were.
local function instance()
  local sparse_convert, sparse_ratio, sparse_safe
  local encode_max_depth, decode_max_depth, number_precision, number_format
  local keep_buffer, encode_invalid, decode_invalid, mark_arrays

  local function reset()
    sparse_convert, sparse_ratio, sparse_safe = false, 2, 10
    encode_max_depth, decode_max_depth, number_precision, number_format = 1000, 1000, 14, nil
    keep_buffer, encode_invalid, decode_invalid, mark_arrays = true, false, true, false
  end
  reset()

  -- ---- Encoding. `frames` is how many calls of `append` there are; `error` needs it to find the script.

  local function number_text(number, frames)
    if number ~= number or number == huge or number == -huge then
      if encode_invalid == false then
        error("Cannot serialise number: must not be NaN or Inf", frames + 3)
      elseif encode_invalid == "null" then
        return "null"
      elseif number ~= number then
        return "nan"
      end
    end
    if number_format then
      return format(number_format, number)
    end
    return number -- `concat` writes it with 14 digits
  end

  -- The length of the table as an array, or -1 if it is an object.
  local function array_length(value, frames)
    local greatest, items = 0, 0
    for key in next, value do
      if type(key) ~= "number" or key < 1 or floor(key) ~= key then
        return -1
      end
      if key > greatest then
        greatest = key > INT_MAX and -INT_MAX - 1 or key -- as in C, where it is an int
      end
      items = items + 1
    end
    if sparse_ratio > 0 and greatest > items * sparse_ratio and greatest > sparse_safe then
      if not sparse_convert then
        error("Cannot serialise table: excessively sparse array", frames + 3)
      end
      return -1
    end
    return greatest
  end

  local function append(buffer, count, value, frames)
    local kind = type(value)
    if kind == "string" then
      buffer[count + 1] = '"'
      buffer[count + 2] = find(value, MUST_ESCAPE) and escaped(value) or value
      buffer[count + 3] = '"'
      return count + 3
    elseif kind == "number" then
      buffer[count + 1] = number_text(value, frames)
      return count + 1
    elseif kind == "boolean" then
      buffer[count + 1] = value and "true" or "false"
      return count + 1
    elseif value == nil or value == null then
      buffer[count + 1] = "null"
      return count + 1
    elseif kind ~= "table" then
      error("Cannot serialise " .. kind .. ": type not supported", frames + 2)
    end

    if frames > encode_max_depth or frames > DEEPEST then
      error("Cannot serialise, excessive nesting (" .. frames .. ")", frames + 2)
    end
    local length = array_length(value, frames)
    local metatable = getmetatable(value)
    if length > 0 then
      buffer[count + 1] = "["
      count = count + 1
      for i = 1, length do
        local element
        if metatable == nil then
          element = value[i]
        else
          element = rawget(value, i)
        end
        count = append(buffer, count, element, frames + 1)
        buffer[count + 1] = ","
        count = count + 1
      end
      buffer[count] = "]"
      return count
    elseif length == 0 then
      local is_array = type(metatable) == "table" and rawget(metatable, "__is_cjson_array")
      buffer[count + 1] = is_array and "[]" or "{}"
      return count + 1
    end
    buffer[count + 1] = "{"
    count = count + 1
    for key, element in next, value do
      local key_kind = type(key)
      buffer[count + 1] = '"'
      if key_kind == "string" then
        buffer[count + 2] = find(key, MUST_ESCAPE) and escaped(key) or key
      elseif key_kind == "number" then
        buffer[count + 2] = number_text(key, frames)
      else
        error("Cannot serialise " .. key_kind .. ": table key must be a number or string", frames + 2)
      end
      buffer[count + 3] = '":'
      count = append(buffer, count + 3, element, frames + 1)
      buffer[count + 1] = ","
      count = count + 1
    end
    buffer[count] = "}"
    return count
  end

  local function encode(...)
    if select("#", ...) ~= 1 then
      refuse(1, "encode", 1, "expected 1 argument")
    end
    local buffer = {}
    local count = append(buffer, 0, (...), 1)
    return concat(buffer, "", 1, count)
  end

  -- ---- Decoding. `frames` is how many calls of `parse` there are, and so the depth.

  local function fail(expected, found, where, frames)
    error("Expected " .. expected .. " but found " .. found .. " at character " .. where, frames + 3)
  end

  local function fail_at(expected, text, at, frames)
    local found, where = describe(text, at, decode_invalid)
    fail(expected, found, where, frames + 1)
  end

  local function parse(text, at, frames)
    local first = byte(text, at)
    if first == 32 or first == 10 or first == 13 or first == 9 then
      at = find(text, "[^ \t\r\n]", at) or #text + 1
      first = byte(text, at)
    end
    if first == 34 then
      local value, after, where = scan_string(text, at)
      if not value then
        fail("value", after, where, frames)
      end
      return value, after
    elseif first == 123 then
      if frames > decode_max_depth or frames > DEEPEST then
        error("Found too many nested data structures (" .. frames .. ") at character " .. at, frames + 2)
      end
      local object = {}
      at = find(text, "[^ \t\r\n]", at + 1) or #text + 1
      if byte(text, at) == 125 then
        return object, at + 1
      end
      while true do
        if byte(text, at) ~= 34 then
          fail_at("object key string", text, at, frames)
        end
        local key, after, where = scan_string(text, at)
        if not key then
          fail("object key string", after, where, frames)
        end
        at = find(text, "[^ \t\r\n]", after) or #text + 1
        if byte(text, at) ~= 58 then
          fail_at("colon", text, at, frames)
        end
        object[key], at = parse(text, at + 1, frames + 1)
        at = find(text, "[^ \t\r\n]", at) or #text + 1
        local separator = byte(text, at)
        if separator == 125 then
          return object, at + 1
        elseif separator ~= 44 then
          fail_at("comma or object end", text, at, frames)
        end
        at = find(text, "[^ \t\r\n]", at + 1) or #text + 1
      end
    elseif first == 91 then
      if frames > decode_max_depth or frames > DEEPEST then
        error("Found too many nested data structures (" .. frames .. ") at character " .. at, frames + 2)
      end
      local array, length = {}, 0
      if mark_arrays then
        setmetatable(array, { __is_cjson_array = true })
      end
      at = find(text, "[^ \t\r\n]", at + 1) or #text + 1
      if byte(text, at) == 93 then
        return array, at + 1
      end
      while true do
        length = length + 1
        array[length], at = parse(text, at, frames + 1)
        at = find(text, "[^ \t\r\n]", at) or #text + 1
        local separator = byte(text, at)
        if separator == 93 then
          return array, at + 1
        elseif separator ~= 44 then
          fail_at("comma or array end", text, at, frames)
        end
        at = at + 1
      end
    elseif first and (first == 45 or (first >= 48 and first <= 57)) then
      local number, after = scan_number(text, at, decode_invalid)
      if not number then
        fail("value", after, at, frames)
      end
      return number, after
    elseif first == 116 and find(text, "^true", at) then
      return true, at + 4
    elseif first == 102 and find(text, "^false", at) then
      return false, at + 5
    elseif first == 110 and find(text, "^null", at) then
      return null, at + 4
    elseif decode_invalid and is_invalid_number(text, at) then
      local number, after = scan_number(text, at, true)
      if number then
        return number, after
      end
    end
    fail_at("value", text, at, frames)
  end

  local function decode(...)
    if select("#", ...) ~= 1 then
      refuse(1, "decode", 1, "expected 1 argument")
    end
    local text = check_string(1, "decode", 1, (...))
    if #text >= 2 and (byte(text, 1) == 0 or byte(text, 2) == 0) then
      error("JSON parser does not support UTF-16 or UTF-32", 2)
    end
    local zero = find(text, "\0", 1, true)
    if zero then
      text = sub(text, 1, zero - 1) -- a string of C ends there
    end
    local value, at = parse(text, 1, 1)
    at = find(text, "[^ \t\r\n]", at)
    if at then
      fail_at("the end", text, at, 0)
    end
    return value
  end

  -- ---- Settings. A function sets what it is given and returns what then holds.

  local function check_count(name, most, count)
    if count > most then
      refuse(2, name, most + 1, "found too many arguments")
    end
  end

  local function integer_setting(name, index, value, now, least, most)
    if value == nil then
      return now
    end
    local number = check_integer(2, name, index, value)
    if number < least or number > most then
      refuse(2, name, 1, format("expected integer between %d and %d", least, most))
    end
    return number
  end

  -- `others` are words beside "on" and "off".
  local function switch_setting(name, index, value, now, others)
    if value == nil then
      return now
    elseif type(value) == "boolean" then
      return value
    end
    local word = check_string(2, name, index, value)
    if word == "on" then
      return true
    elseif word == "off" then
      return false
    elseif others and others[word] then
      return word
    end
    refuse(2, name, index, "invalid option '" .. word .. "'")
  end

  return {
    encode = encode,
    decode = decode,
    encode_sparse_array = function(...)
      local convert, ratio, safe = ...
      check_count("encode_sparse_array", 3, select("#", ...))
      sparse_convert = switch_setting("encode_sparse_array", 1, convert, sparse_convert)
      sparse_ratio = integer_setting("encode_sparse_array", 2, ratio, sparse_ratio, 0, INT_MAX)
      sparse_safe = integer_setting("encode_sparse_array", 3, safe, sparse_safe, 0, INT_MAX)
      return sparse_convert, sparse_ratio, sparse_safe
    end,
    encode_max_depth = function(depth, ...)
      check_count("encode_max_depth", 1, 1 + select("#", ...))
      encode_max_depth = integer_setting("encode_max_depth", 1, depth, encode_max_depth, 1, INT_MAX)
      return encode_max_depth
    end,
    decode_max_depth = function(depth, ...)
      check_count("decode_max_depth", 1, 1 + select("#", ...))
      decode_max_depth = integer_setting("decode_max_depth", 1, depth, decode_max_depth, 1, INT_MAX)
      return decode_max_depth
    end,
    encode_number_precision = function(digits, ...)
      check_count("encode_number_precision", 1, 1 + select("#", ...))
      number_precision = integer_setting("encode_number_precision", 1, digits, number_precision, 1, 14)
      number_format = number_precision ~= 14 and "%." .. number_precision .. "g" or nil
      return number_precision
    end,
    encode_keep_buffer = function(keep, ...) -- for scripts that set it: there is no buffer to keep
      check_count("encode_keep_buffer", 1, 1 + select("#", ...))
      keep_buffer = switch_setting("encode_keep_buffer", 1, keep, keep_buffer)
      return keep_buffer
    end,
    encode_invalid_numbers = function(allow, ...)
      check_count("encode_invalid_numbers", 1, 1 + select("#", ...))
      encode_invalid = switch_setting("encode_invalid_numbers", 1, allow, encode_invalid, { null = true })
      return encode_invalid
    end,
    decode_invalid_numbers = function(allow, ...)
      check_count("decode_invalid_numbers", 1, 1 + select("#", ...))
      decode_invalid = switch_setting("decode_invalid_numbers", 1, allow, decode_invalid)
      return decode_invalid
    end,
    decode_array_with_array_mt = function(mark, ...)
      check_count("decode_array_with_array_mt", 1, 1 + select("#", ...))
      mark_arrays = switch_setting("decode_array_with_array_mt", 1, mark, mark_arrays)
      return mark_arrays
    end,
    new = new,
    null = null,
    _NAME = "cjson",
    _VERSION = "2.1.0",
  }, reset
end

function new()
  local functions = instance()
  return functions
end

return instance()
