-- Operations on the bits of 32-bit integers, as LuaBitOp has them.
--
-- Numbers are doubles: an argument is rounded to an integer and taken modulo 2^32; a result is signed. AND of two
-- numbers is looked up six bits at a time; OR and XOR follow from it.

local host = ...
local type, select, tonumber = host.type, host.select, host.tonumber
local floor, frexp, abs, huge = host.math.floor, host.math.frexp, host.math.abs, host.math.huge
local sub, format, upper = host.string.sub, host.string.format, host.string.upper
local refuse_type = host.arguments.refuse_type

local WORD = 2 ^ 32
local ROUNDING = 2 ^ 52 + 2 ^ 51 -- added to a number, it leaves no bits for a fraction

local AND = {} -- AND[64 * a + b] for six bits each
for a = 0, 63 do
  for b = 0, 63 do
    local result, x, y, unit = 0, a, b, 1
    for _ = 1, 6 do
      if x % 2 == 1 and y % 2 == 1 then
        result = result + unit
      end
      x, y, unit = floor(x / 2), floor(y / 2), unit * 2
    end
    AND[64 * a + b] = result
  end
end

-- The low 32 bits of a number, 0 to 2^32 - 1. `name` and `index` are for the error.
local function bits(value, name, index, is_missing)
  local number = value
  if type(value) ~= "number" then
    number = type(value) == "string" and tonumber(value) or nil
    if number == nil then
      refuse_type(2, name, index, "number", value, is_missing)
    end
  end
  local rounded = number + ROUNDING
  if rounded >= 2 ^ 52 and rounded < 2 ^ 53 then
    return rounded % WORD
  elseif rounded ~= rounded or abs(rounded) == huge then
    return 0
  end
  return (abs((frexp(rounded))) * 2 ^ 53) % WORD -- a number too large to be rounded so: the low bits of its fraction
end

local function signed(word)
  return word >= 2147483648 and word - WORD or word
end

local function and_words(a, b)
  local x, y = a % 64, b % 64
  local result = AND[64 * x + y]
  a, b = (a - x) / 64, (b - y) / 64
  x, y = a % 64, b % 64
  result = result + AND[64 * x + y] * 64
  a, b = (a - x) / 64, (b - y) / 64
  x, y = a % 64, b % 64
  result = result + AND[64 * x + y] * 4096
  a, b = (a - x) / 64, (b - y) / 64
  x, y = a % 64, b % 64
  result = result + AND[64 * x + y] * 262144
  a, b = (a - x) / 64, (b - y) / 64
  x, y = a % 64, b % 64
  return result + AND[64 * x + y] * 16777216 + AND[(a - x) + (b - y) / 64] * 1073741824
end

local function or_words(a, b)
  return a + b - and_words(a, b)
end

local function xor_words(a, b)
  return a + b - 2 * and_words(a, b)
end

-- A function over any number of arguments, at least one.
local function fold(name, combine)
  return function(...)
    local given = select("#", ...)
    local first, second = ...
    if given == 2 then
      return signed(combine(bits(first, name, 1), bits(second, name, 2)))
    end
    local word = bits(first, name, 1, given == 0)
    for i = 2, given do
      word = combine(word, bits((select(i, ...)), name, i))
    end
    return signed(word)
  end
end

-- A function of a word and a distance of 0 to 31.
local function shift(name, move)
  return function(value, distance)
    local word = bits(value, name, 1)
    return signed(move(word, bits(distance, name, 2) % 32))
  end
end

local function left(word, distance)
  return (word * 2 ^ distance) % WORD
end

local function right(word, distance)
  return floor(word / 2 ^ distance)
end

return {
  tobit = function(value)
    return signed(bits(value, "tobit", 1))
  end,
  bnot = function(value)
    return signed(WORD - 1 - bits(value, "bnot", 1))
  end,
  band = fold("band", and_words),
  bor = fold("bor", or_words),
  bxor = fold("bxor", xor_words),
  lshift = shift("lshift", left),
  rshift = shift("rshift", right),
  arshift = shift("arshift", function(word, distance)
    return floor(signed(word) / 2 ^ distance) % WORD
  end),
  rol = shift("rol", function(word, distance)
    return left(word, distance) + right(word, 32 - distance)
  end),
  ror = shift("ror", function(word, distance)
    return left(word, 32 - distance) + right(word, distance)
  end),
  bswap = function(value)
    local word = bits(value, "bswap", 1)
    local lowest = word % 256
    local low = (word - lowest) / 256 % 256
    local high = floor(word / 65536) % 256
    return signed(lowest * 16777216 + low * 65536 + high * 256 + floor(word / 16777216))
  end,
  tohex = function(value, ...)
    local digits = format("%08x", bits(value, "tohex", 1))
    local count = 8
    if select("#", ...) > 0 then
      count = signed(bits((...), "tohex", 2))
      if count < 0 then
        count, digits = -count, upper(digits)
      end
    end
    return count == 0 and "" or sub(digits, count > 8 and 1 or 9 - count)
  end,
}
