-- Packing and unpacking of C structures, as Roberto Ierusalimschy's `struct` has them in Redis.
--
--   > <       big, little endian        b B   signed, unsigned char       f d   float, double
--   ![n]      alignment                 h H   short                       s     string that ends with a zero byte
--   x         a zero byte               l L   long (8 bytes)              c[n]  n characters; c0: all, or as many as the
--   i[n] I[n] integer of n bytes        T     size_t (8 bytes)                  number before says

local host = ...
local error, type, tonumber, select, unpack = host.error, host.type, host.tonumber, host.select, host.unpack
local byte, char, find, sub = host.string.byte, host.string.char, host.string.find, host.string.sub
local rep, reverse, format, concat = host.string.rep, host.string.reverse, host.string.format, host.table.concat
local floor, ceil = host.math.floor, host.math.ceil
local refuse, check_string = host.arguments.refuse, host.arguments.check_string
local check_number, check_integer = host.arguments.check_number, host.arguments.check_integer
local double_bytes, float_bytes = host.floats.double_bytes, host.floats.float_bytes
local double_from, float_from = host.floats.double_from, host.floats.float_from

local INT_MAX = 2147483647
local WORD = 4294967296
local MAX_INTEGER_BYTES = 32
local NATIVE_ALIGNMENT = 8
local MAX_RESULTS = 7900

local FIXED_BYTES = { b = 1, B = 1, h = 2, H = 2, l = 8, L = 8, T = 8, f = 4, d = 8, x = 1 }
local IS_INTEGER = { b = true, B = true, h = true, H = true, l = true, L = true, T = true, i = true, I = true }
local IS_SIGNED = { b = true, h = true, l = true, i = true }

-- The number at a position of the format, and the position after it.
local function number_at(formats, at, default)
  local _, stop = find(formats, "^%d+", at)
  if not stop then
    return default, at
  end
  local number = tonumber(sub(formats, at, stop))
  if number > INT_MAX then
    error("integral size overflow", 4)
  end
  return number, stop + 1
end

-- The option at a position, its size in bytes, and the position after it; no option at the end.
local function option_at(formats, at)
  local option = sub(formats, at, at)
  if option == "i" or option == "I" then
    local size, after = number_at(formats, at + 1, 4)
    if size > MAX_INTEGER_BYTES then
      error(format("integral size %d is larger than limit of %d", size, MAX_INTEGER_BYTES), 3)
    end
    return option, size, after
  elseif option == "c" then
    local size, after = number_at(formats, at + 1, 1)
    return option, size, after
  end
  return option, FIXED_BYTES[option] or 0, at + 1
end

-- What an option that only sets something sets: the byte order, the alignment, and the position after it.
local function control(name, option, formats, at, is_big, alignment)
  if option == ">" then
    return true, alignment, at
  elseif option == "<" then
    return false, alignment, at
  elseif option == "!" then
    local size
    size, at = number_at(formats, at, NATIVE_ALIGNMENT)
    local power = 1
    while power < size do
      power = power * 2
    end
    if power ~= size then
      error(format("alignment %d is not a power of 2", size), 3)
    end
    return is_big, size, at
  elseif option ~= " " then
    refuse(2, name, 1, "invalid format option '" .. option .. "'")
  end
  return is_big, alignment, at
end

-- Bitwise AND with a mask of at most five bits.
local function masked(number, mask)
  local result, unit = 0, 1
  while mask > 0 do
    if mask % 2 == 1 and number % 2 == 1 then
      result = result + unit
    end
    mask, number, unit = floor(mask / 2), floor(number / 2), unit * 2
  end
  return result
end

-- How many bytes bring `position` to where an option of `size` bytes may stand.
local function padding(position, option, size, alignment)
  if size <= 1 or option == "c" or alignment == 1 then
    return 0
  elseif size > alignment then
    size = alignment
  end
  return masked(size - masked(position, size - 1), size - 1)
end

local function integer_bytes(number, size, is_big)
  if number ~= number or number < -2 ^ 63 then
    number = -2 ^ 63
  elseif number >= 2 ^ 64 then
    number = 0
  end
  number = number < 0 and ceil(number) or floor(number)
  local low = number % WORD
  local high = (number - low) / WORD % WORD
  local bytes = char(
    low % 256, floor(low / 256) % 256, floor(low / 65536) % 256, floor(low / 16777216),
    high % 256, floor(high / 256) % 256, floor(high / 65536) % 256, floor(high / 16777216)
  )
  if size < 8 then
    bytes = sub(bytes, 1, size)
  elseif size > 8 then
    bytes = bytes .. rep("\0", size - 8)
  end
  return is_big and reverse(bytes) or bytes
end

local function integer_from(data, at, size, is_big, is_signed)
  if size > 8 then -- only the low 8 bytes fit
    at, size = is_big and at + size - 8 or at, 8
  end
  local high, low = 0, 0
  for i = 1, size do
    local value = byte(data, is_big and at + i - 1 or at + size - i)
    if i > size - 4 then
      low = low * 256 + value
    else
      high = high * 256 + value
    end
  end
  if is_signed and size > 0 then
    if size > 4 then
      local range = 256 ^ (size - 4)
      if high >= range / 2 then
        high = high - range
      end
    elseif low >= 256 ^ size / 2 then
      low = low - 256 ^ size
    end
  end
  return high * WORD + low
end

local function in_order(bytes, is_big)
  return is_big and bytes or reverse(bytes)
end

-- The format ends at a zero byte, as a string of C does.
local function checked_format(name, formats, is_missing)
  formats = check_string(2, name, 1, formats, is_missing)
  local zero = find(formats, "%z")
  return zero and sub(formats, 1, zero - 1) or formats
end

local function pack(...)
  local given = select("#", ...)
  local formats = checked_format("pack", (...), given == 0)
  local is_big, alignment, total = false, 1, 0
  local buffer, count, argument, at = {}, 0, 2, 1
  while at <= #formats do
    local option, size, after = option_at(formats, at)
    local gap = padding(total, option, size, alignment)
    if gap > 0 then
      count = count + 1
      buffer[count] = rep("\0", gap)
      total = total + gap
    end
    local piece
    if IS_INTEGER[option] then
      local number = check_number(1, "pack", argument, (select(argument, ...)))
      piece = integer_bytes(number, size, is_big)
      argument = argument + 1
    elseif option == "x" then
      piece = "\0"
    elseif option == "f" then
      local bytes = float_bytes(check_number(1, "pack", argument, (select(argument, ...))))
      piece = in_order(bytes, is_big)
      argument = argument + 1
    elseif option == "d" then
      local number = check_number(1, "pack", argument, (select(argument, ...)))
      piece = in_order(double_bytes(number), is_big)
      argument = argument + 1
    elseif option == "c" or option == "s" then
      piece = check_string(1, "pack", argument, (select(argument, ...)))
      argument = argument + 1
      if size > #piece then
        refuse(1, "pack", argument, "string too short")
      elseif size > 0 then
        piece = sub(piece, 1, size)
      end
      if option == "s" then
        piece = piece .. "\0"
      end
    else
      is_big, alignment, after = control("pack", option, formats, after, is_big, alignment)
    end
    if piece then
      count = count + 1
      buffer[count] = piece
      total = total + #piece
    end
    at = after
  end
  return concat(buffer, "", 1, count)
end

local TOO_SHORT = "data string too short"

local function unpack_structure(...)
  local formats, data, position = ...
  local given = select("#", ...)
  formats = checked_format("unpack", formats, given == 0)
  data = check_string(1, "unpack", 2, data, given < 2)
  position = position == nil and 1 or check_integer(1, "unpack", 3, position)
  if position < 1 then
    refuse(1, "unpack", 3, "offset must be 1 or greater")
  end
  position = position - 1 -- counted from 0, for the alignment
  local is_big, alignment = false, 1
  local results, count, at = {}, 0, 1
  while at <= #formats do
    local option, size, after = option_at(formats, at)
    position = position + padding(position, option, size, alignment)
    if position + size > #data then
      refuse(1, "unpack", 2, TOO_SHORT)
    elseif count >= MAX_RESULTS then
      error("stack overflow (too many results)", 2)
    end
    local value
    if IS_INTEGER[option] then
      value = integer_from(data, position + 1, size, is_big, IS_SIGNED[option])
    elseif option == "f" then
      local a, b, c, d = byte(data, position + 1, position + 4)
      value = is_big and float_from(a, b, c, d) or float_from(d, c, b, a)
    elseif option == "d" then
      local a, b, c, d, e, f, g, h = byte(data, position + 1, position + 8)
      value = is_big and double_from(a, b, c, d, e, f, g, h) or double_from(h, g, f, e, d, c, b, a)
    elseif option == "c" then
      if size == 0 then
        local before = count > 0 and (type(results[count]) == "number" or type(results[count]) == "string")
        size = before and tonumber(results[count])
        if not size then
          error("format 'c0' needs a previous size", 2)
        end
        count = count - 1
        if size < 0 or size ~= size or position + floor(size) > #data then
          refuse(1, "unpack", 2, TOO_SHORT)
        end
        size = floor(size)
      end
      value = sub(data, position + 1, position + size)
    elseif option == "s" then
      local stop = find(data, "%z", position + 1)
      if not stop then
        error("unfinished string in data", 2)
      end
      value = sub(data, position + 1, stop - 1)
      size = #value + 1
    elseif option ~= "x" then
      is_big, alignment, after = control("unpack", option, formats, after, is_big, alignment)
    end
    if value ~= nil then
      count = count + 1
      results[count] = value
    end
    position = position + size
    at = after
  end
  results[count + 1] = position + 1
  return unpack(results, 1, count + 1)
end

local function size_of(...)
  local formats = checked_format("size", (...), select("#", ...) == 0)
  local is_big, alignment, total, at = false, 1, 0, 1
  while at <= #formats do
    local option, size, after = option_at(formats, at)
    total = total + padding(total, option, size, alignment)
    if option == "s" then
      refuse(1, "size", 1, "option 's' has no fixed size")
    elseif option == "c" and size == 0 then
      refuse(1, "size", 1, "option 'c0' has no fixed size")
    elseif not find(option, "^%w") then
      is_big, alignment, after = control("size", option, formats, after, is_big, alignment)
    end
    total = total + size
    at = after
  end
  return total
end

return { pack = pack, unpack = unpack_structure, size = size_of }
