-- IEEE 754 numbers as bytes, most significant first, for `struct` and `cmsgpack`.

local host = ...
local char, byte, tostring = host.string.char, host.string.byte, host.tostring
local frexp, ldexp, floor, huge = host.math.frexp, host.math.ldexp, host.math.floor, host.math.huge

local function round_to_even(number)
  local below = floor(number)
  local rest = number - below
  if rest > 0.5 or (rest == 0.5 and below % 2 == 1) then
    return below + 1
  end
  return below
end

local function is_negative(number)
  if number ~= number then
    return byte(tostring(number)) == 45 -- "-nan": the sign of a NaN shows nowhere else
  end
  return number < 0 or (number == 0 and 1 / number < 0)
end

local function double_bytes(number)
  local sign = is_negative(number) and 128 or 0
  local exponent, high, low = 0, 0, 0 -- of the 52 bits of the fraction: the upper 20, the lower 32
  if number ~= number then
    exponent, high = 2047, 524288
  elseif number == huge or number == -huge then
    exponent = 2047
  elseif number ~= 0 then
    local fraction
    fraction, exponent = frexp(sign == 0 and number or -number)
    exponent = exponent + 1022
    if exponent <= 0 then -- subnormal
      fraction, exponent = ldexp(fraction, exponent - 1), 0
    else
      fraction = fraction - 0.5
    end
    fraction = fraction * 2097152 -- 2^21: the upper 20 bits stand before the point
    high = floor(fraction)
    low = (fraction - high) * 4294967296
  end
  return char(
    sign + floor(exponent / 16),
    exponent % 16 * 16 + floor(high / 65536),
    floor(high / 256) % 256,
    high % 256,
    floor(low / 16777216),
    floor(low / 65536) % 256,
    floor(low / 256) % 256,
    low % 256
  )
end

-- The bytes, and the number that they stand for: the nearest with 24 bits.
local function float_bytes(number)
  local sign = is_negative(number) and 128 or 0
  local exponent, fraction = 0, 0 -- the fraction as an integer of 23 bits
  local stored = number
  if number ~= number then
    exponent, fraction = 255, 4194304
  elseif number == huge or number == -huge then
    exponent = 255
  elseif number ~= 0 then
    local _
    _, exponent = frexp(number)
    local unit = exponent < -125 and -149 or exponent - 24
    fraction = round_to_even(ldexp(sign == 0 and number or -number, -unit))
    stored = ldexp(fraction, unit)
    if stored >= 2 ^ 128 then
      stored, exponent, fraction = huge, 255, 0
    elseif fraction < 8388608 then
      exponent = 0 -- subnormal
    else
      _, exponent = frexp(stored)
      exponent = exponent + 126
      fraction = ldexp(stored, 150 - exponent) - 8388608
    end
    if sign ~= 0 then
      stored = -stored
    end
  end
  local bytes = char(
    sign + floor(exponent / 2),
    exponent % 2 * 128 + floor(fraction / 65536),
    floor(fraction / 256) % 256,
    fraction % 256
  )
  return bytes, stored
end

local function value_of(sign, exponent, fraction, greatest, bits, bias)
  local number
  if exponent == greatest then
    number = fraction == 0 and huge or (huge - huge)
    if fraction ~= 0 then
      return sign == 0 and -number or number
    end
  elseif exponent == 0 then
    number = ldexp(fraction, 1 - bias - bits)
  else
    number = ldexp(1 + fraction / 2 ^ bits, exponent - bias)
  end
  return sign == 0 and number or -number
end

local function double_from(a, b, c, d, e, f, g, h)
  local sign = a >= 128 and 1 or 0
  local fraction = ((((((b % 16) * 256 + c) * 256 + d) * 256 + e) * 256 + f) * 256 + g) * 256 + h
  return value_of(sign, a % 128 * 16 + floor(b / 16), fraction, 2047, 52, 1023)
end

local function float_from(a, b, c, d)
  local sign = a >= 128 and 1 or 0
  return value_of(sign, a % 128 * 2 + floor(b / 128), (b % 128 * 256 + c) * 256 + d, 255, 23, 127)
end

return { double_bytes = double_bytes, float_bytes = float_bytes, double_from = double_from, float_from = float_from }
