-- string.find, match, gmatch and gsub with a bound on the time that they spend in C, where no limit holds.
--
-- Lua's own matcher tries again and again: with k items that repeat, a string of n bytes can cost n^k steps. A pattern
-- whose worst case is small goes to the C functions. Others go to a matcher written in Lua: slower, but a script that
-- explodes there is ended by its time limit. Both give the same results.
--
-- `host.check` raises when the script's time is over. It is called where one call may take long, because the hook
-- only counts instructions of Lua.

local host = ...
local error, type, next, select, unpack = host.error, host.type, host.next, host.select, host.unpack
local tostring, tonumber, floor, concat = host.tostring, host.tonumber, host.math.floor, host.table.concat
local byte, char, sub, getinfo = host.string.byte, host.string.char, host.string.sub, host.getinfo
local c_find, c_match, c_gmatch, c_gsub = host.string.find, host.string.match, host.string.gmatch, host.string.gsub
local refuse, check_string, check_integer =
  host.arguments.refuse, host.arguments.check_string, host.arguments.check_integer
local check = host.check or function() end

local COST_MAX = 10000000 -- steps that one call in C may take: about 50 ms
local LINEAR_COST_MAX = 50000000 -- the same where it grows with the length alone: few steps are taken of those counted
local COST_CHECKED = 100000 -- from here on the time is looked at after each call
local COMPARED_MAX = 200000000 -- bytes that a search for plain text may compare in one call: they are compared fast
local REPLACED_MAX = 100000 -- bytes in which C may replace at once: each replacement costs as much as many steps
local CALLS_MAX = 150 -- items of a pattern that C may nest
local DEEPEST = 5000 -- items that the matcher in Lua nests
local CAPTURES_MAX = 32
local CACHED_BYTES_MAX = 128
local CACHED_MAX = 256

-- Kinds of items. A literal or class has a `set` of bytes.
local SINGLE, OPEN, POSITION, CLOSE, FINISH, BALANCED, FRONTIER, BACK, BROKEN = 1, 2, 3, 4, 5, 6, 7, 8, 9

-- ---- Patterns as lists of items

local class_sets = {} -- by letter

local function class_set(letter)
  local set = class_sets[letter]
  if not set then
    set = {}
    local pattern = "[%" .. letter .. "]"
    for code = 0, 255 do
      set[code] = c_find(char(code), pattern) ~= nil
    end
    class_sets[letter] = set
  end
  return set
end

local any_set = {}
for code = 0, 255 do
  any_set[code] = true
end

local literal_sets = {}

local function literal_set(code)
  local set = literal_sets[code]
  if not set then
    set = { [code] = true }
    literal_sets[code] = set
  end
  return set
end

-- The end of a set that begins with "[" at `at`: the position of its "]", or nil.
local function set_end(pattern, at)
  at = at + 1
  if byte(pattern, at) == 94 then
    at = at + 1
  end
  repeat
    local code = byte(pattern, at)
    if not code then
      return nil
    end
    at = at + 1
    if code == 37 then
      if not byte(pattern, at) then
        return nil
      end
      at = at + 1
    end
  until byte(pattern, at) == 93
  return at
end

local function read_set(pattern, at, stop)
  local is_negated = byte(pattern, at + 1) == 94
  at = is_negated and at + 2 or at + 1
  local set = {}
  while at < stop do
    local code = byte(pattern, at)
    if code == 37 then
      for member, is_in in next, class_set(sub(pattern, at + 1, at + 1)) do
        if is_in then
          set[member] = true
        end
      end
      at = at + 2
    elseif byte(pattern, at + 1) == 45 and at + 2 < stop then
      for member = code, byte(pattern, at + 2) do
        set[member] = true
      end
      at = at + 3
    else
      set[code] = true
      at = at + 1
    end
  end
  if is_negated then
    local others = {}
    for code = 0, 255 do
      others[code] = not set[code]
    end
    return others
  end
  return set
end

-- The set of one character of a pattern and the position after it; or nil and what is wrong.
local function read_single(pattern, at)
  local code = byte(pattern, at)
  if code == 46 then
    return any_set, at + 1
  elseif code == 37 then
    if at == #pattern then
      return nil, "malformed pattern (ends with '%')"
    end
    return class_set(sub(pattern, at + 1, at + 1)), at + 2
  elseif code == 91 then
    local stop = set_end(pattern, at)
    if not stop then
      return nil, "malformed pattern (missing ']')"
    end
    return read_set(pattern, at, stop), stop + 1
  end
  return literal_set(code), at + 1
end

-- The item at a position, and the position after it.
local function read_item(pattern, at)
  local code, following = byte(pattern, at, at + 1)
  if code == 40 then
    if following == 41 then
      return { kind = POSITION }, at + 2
    end
    return { kind = OPEN }, at + 1
  elseif code == 41 then
    return { kind = CLOSE }, at + 1
  elseif code == 36 and at == #pattern then
    return { kind = FINISH }, at + 1
  elseif code == 37 and following == 98 then
    local opening, closing = byte(pattern, at + 2, at + 3)
    if not closing then
      return { kind = BROKEN, problem = "unbalanced pattern" }, at + 2
    end
    return { kind = BALANCED, opening = opening, closing = closing }, at + 4
  elseif code == 37 and following == 102 then
    if byte(pattern, at + 2) ~= 91 then
      return { kind = BROKEN, problem = "missing '[' after '%f' in pattern" }, at + 2
    end
    local set, after = read_single(pattern, at + 2)
    if not set then
      return { kind = BROKEN, problem = after }, at + 2
    end
    return { kind = FRONTIER, set = set }, after
  elseif code == 37 and following and following >= 48 and following <= 57 then
    return { kind = BACK, index = following - 48 }, at + 2
  end
  local set, after = read_single(pattern, at)
  if not set then
    return { kind = BROKEN, problem = after }, at + 1
  end
  local repeats = sub(pattern, after, after)
  if repeats == "*" or repeats == "+" or repeats == "-" or repeats == "?" then
    return { kind = SINGLE, set = set, repeats = repeats }, after + 1
  end
  return { kind = SINGLE, set = set }, after
end

-- How the worst case grows: the power of the length that it grows with, how many calls C nests, and whether C must not
-- have it because it could raise an error, which would name a place in this file.
local function assess(compiled)
  local items = compiled.items
  local power, calls, open, is_broken = compiled.is_anchored and 0 or 1, 0, 0, false
  local captures, optional, is_long = 0, 0, false
  for i = 1, #items do
    local item = items[i]
    local kind = item.kind
    if kind == SINGLE then
      if item.repeats == "?" then
        calls, optional = calls + 1, optional + 1
      elseif item.repeats then
        calls, is_long = calls + 1, true
        for later = i + 1, #items do
          if items[later].kind ~= CLOSE and items[later].kind ~= POSITION then
            power = power + 1 -- something may fail after it, and then it is tried with another length
            break
          end
        end
      end
    elseif kind == OPEN or kind == POSITION then
      calls, captures = calls + 1, captures + 1
      open = kind == OPEN and open + 1 or open
    elseif kind == CLOSE then
      calls, open = calls + 1, open - 1
      is_broken = is_broken or open < 0
    elseif kind == BALANCED then
      power = power + 1
    elseif kind == BACK or kind == BROKEN then
      is_broken = true -- a reference may be to a capture that is open or missing
    end
  end
  compiled.captures = captures
  compiled.power = (is_long and power == 0) and 1 or power -- it may reach to the end
  compiled.weight = (#compiled.pattern + 1) * 2 ^ optional
  compiled.only_in_lua = is_broken or open ~= 0 or captures > CAPTURES_MAX or calls > CALLS_MAX
end

local function compile(pattern, anchors)
  local text = pattern
  local zero = c_find(pattern, "%z") -- as in C, a pattern ends there
  if zero then
    text = sub(pattern, 1, zero - 1)
  end
  local is_anchored = anchors and byte(text, 1) == 94
  local items, at = {}, is_anchored and 2 or 1
  while at <= #text do
    items[#items + 1], at = read_item(text, at)
  end
  -- The functions of C that look for one match take "^" for an anchor, wherever it is meant as a character.
  local c_pattern = (not anchors and byte(text, 1) == 94) and "%" .. text or text
  local compiled = { items = items, is_anchored = is_anchored, pattern = c_pattern }
  assess(compiled)
  return compiled
end

local caches = { [true] = {}, [false] = {} } -- by whether "^" anchors, by pattern
local cached = 0

local function compiled_pattern(pattern, anchors)
  local compiled = caches[anchors][pattern]
  if not compiled then
    compiled = compile(pattern, anchors)
    if #pattern <= CACHED_BYTES_MAX then
      if cached >= CACHED_MAX then
        caches, cached = { [true] = {}, [false] = {} }, 0
      end
      caches[anchors][pattern] = compiled
      cached = cached + 1
    end
  end
  return compiled
end

-- ---- The matcher in Lua

local UNCLOSED, IS_POSITION = -1, -2
local OWN_SOURCE = getinfo(1, "S").source

-- Raises an error where the script called a function of this file, however many calls of this file lie between.
local function fail(problem)
  local level = 2
  local frame = getinfo(level, "S")
  while frame and (frame.source == OWN_SOURCE or frame.what == "tail") do
    level = level + 1
    frame = getinfo(level, "S")
  end
  error(problem, level)
end

local match_here

local function balanced_end(item, text, at)
  if byte(text, at) ~= item.opening then
    return nil
  end
  local depth, opening, closing = 1, item.opening, item.closing
  for i = at + 1, #text do
    local code = byte(text, i)
    if code == closing then
      depth = depth - 1
      if depth == 0 then
        return i + 1
      end
    elseif code == opening then
      depth = depth + 1
    end
  end
  return nil
end

local function match_repeated(state, item, text, at, i, depth)
  local set, repeats = item.set, item.repeats
  if repeats == "?" then
    if set[byte(text, at)] then
      local stop = match_here(state, text, at + 1, i + 1, depth + 1)
      if stop then
        return stop
      end
    end
    return match_here(state, text, at, i + 1, depth + 1)
  elseif repeats == "-" then
    while true do
      local stop = match_here(state, text, at, i + 1, depth + 1)
      if stop or not set[byte(text, at)] then
        return stop
      end
      at = at + 1
    end
  end
  local least = repeats == "+" and at + 1 or at
  local furthest = at
  while set[byte(text, furthest)] do
    furthest = furthest + 1
  end
  while furthest >= least do
    local stop = match_here(state, text, furthest, i + 1, depth + 1)
    if stop then
      return stop
    end
    furthest = furthest - 1
  end
  return nil
end

-- The position after a match of the items from `i` on that begins at `at`, or nil. The captures are in `state`:
-- their number, where each begins, and its length.
function match_here(state, text, at, i, depth)
  if depth > DEEPEST then
    fail("pattern too complex")
  end
  local items, starts, lengths = state.items, state.starts, state.lengths
  while true do
    local item = items[i]
    if not item then
      return at
    end
    local kind = item.kind
    if kind == SINGLE then
      if item.repeats then
        return match_repeated(state, item, text, at, i, depth)
      elseif not item.set[byte(text, at)] then
        return nil
      end
      at, i = at + 1, i + 1
    elseif kind == OPEN or kind == POSITION then
      local count = state.count + 1
      if count > CAPTURES_MAX then
        fail("too many captures")
      end
      starts[count], lengths[count] = at, kind == OPEN and UNCLOSED or IS_POSITION
      state.count = count
      local stop = match_here(state, text, at, i + 1, depth + 1)
      if not stop then
        state.count = count - 1
      end
      return stop
    elseif kind == CLOSE then
      local open = state.count
      while open > 0 and lengths[open] ~= UNCLOSED do
        open = open - 1
      end
      if open == 0 then
        fail("invalid pattern capture")
      end
      lengths[open] = at - starts[open]
      local stop = match_here(state, text, at, i + 1, depth + 1)
      if not stop then
        lengths[open] = UNCLOSED
      end
      return stop
    elseif kind == FINISH then
      return at == #text + 1 and at or nil
    elseif kind == BALANCED then
      at = balanced_end(item, text, at)
      if not at then
        return nil
      end
      i = i + 1
    elseif kind == FRONTIER then
      if item.set[byte(text, at - 1) or 0] or not item.set[byte(text, at) or 0] then
        return nil
      end
      i = i + 1
    elseif kind == BACK then
      local index = item.index
      if index == 0 or index > state.count or lengths[index] == UNCLOSED then
        fail("invalid capture index")
      end
      local size = lengths[index]
      if size == IS_POSITION or #text - at + 1 < size or
        sub(text, starts[index], starts[index] + size - 1) ~= sub(text, at, at + size - 1) then
        return nil
      end
      at, i = at + size, i + 1
    else
      fail(item.problem)
    end
  end
end

local function captured(state, text)
  local values = {}
  for i = 1, state.count do
    local start, length = state.starts[i], state.lengths[i]
    if length == UNCLOSED then
      fail("unfinished capture")
    end
    values[i] = length == IS_POSITION and start or sub(text, start, start + length - 1)
  end
  return unpack(values, 1, state.count)
end

-- The first match from `from` on: where it begins and ends, and its captures.
local function lua_find(compiled, text, from)
  local state = { items = compiled.items, starts = {}, lengths = {}, count = 0 }
  local last = compiled.is_anchored and from or #text + 1
  for at = from, last do
    state.count = 0
    local stop = match_here(state, text, at, 1, 1)
    if stop then
      return at, stop - 1, captured(state, text)
    end
  end
  return nil
end

-- ---- Which of the two

local function cost_of(compiled, size)
  return (size + 1) ^ compiled.power * compiled.weight
end

local function is_for_c(compiled, cost)
  return not compiled.only_in_lua and cost <= (compiled.power <= 1 and LINEAR_COST_MAX or COST_MAX)
end

-- The same as `lua_find`, by C if it is cheap enough.
local function next_match(compiled, text, from)
  local cost = cost_of(compiled, #text - from + 1)
  if not is_for_c(compiled, cost) then
    return lua_find(compiled, text, from)
  elseif cost > COST_CHECKED then
    check()
  end
  return c_find(text, compiled.pattern, from)
end

-- Where plain text is, looked for in pieces if it could take long.
local function plain_find(text, wanted, from)
  local size = #wanted
  if size <= 1 or (#text - from + 1) * size <= COMPARED_MAX then
    return c_find(text, wanted, from, true)
  end
  local step = floor(COMPARED_MAX / size / 10) + 1
  for at = from, #text - size + 1, step do
    check()
    local first = c_find(sub(text, at, at + step + size - 2), wanted, 1, true)
    if first then
      return at + first - 1, at + first + size - 2
    end
  end
  return nil
end

local function checked_start(name, init, size)
  if init == nil then
    return 1
  end
  init = check_integer(2, name, 3, init)
  if init < 0 then
    init = size + init + 1
  end
  return init < 1 and 1 or (init > size and size + 1 or init)
end

local function checked_texts(name, text, pattern, given)
  if type(text) ~= "string" then
    text = check_string(2, name, 1, text, given < 1)
  end
  if type(pattern) ~= "string" then
    pattern = check_string(2, name, 2, pattern, given < 2)
  end
  return text, pattern
end

local function find(...)
  local text, pattern, init, is_plain = ...
  text, pattern = checked_texts("find", text, pattern, select("#", ...))
  local from = checked_start("find", init, #text)
  local special = not is_plain and c_find(pattern, "[%z%^%$%*%+%?%.%(%[%%%-]")
  if not special or byte(pattern, special) == 0 then
    return plain_find(text, pattern, from)
  end
  return next_match(compiled_pattern(pattern, true), text, from)
end

-- What a function returns of a match: its captures, or all of it if there are none.
local function results(text, ...)
  local first, last = ...
  if not first then
    return nil
  elseif select("#", ...) == 2 then
    return sub(text, first, last)
  end
  return select(3, ...)
end

local function match(...)
  local text, pattern, init = ...
  text, pattern = checked_texts("match", text, pattern, select("#", ...))
  local from = checked_start("match", init, #text)
  local compiled = compiled_pattern(pattern, true)
  if not compiled.only_in_lua and cost_of(compiled, #text) <= COST_CHECKED then
    return c_match(text, pattern, from)
  end
  return results(text, next_match(compiled, text, from))
end

-- A match and the position to look for the next from.
local function with_next(first, last, ...)
  if not first then
    return nil
  end
  return (last < first) and first + 1 or last + 1, first, last, ...
end

local function gmatch(...)
  local text, pattern = ...
  text, pattern = checked_texts("gmatch", text, pattern, select("#", ...))
  local compiled = compiled_pattern(pattern, false)
  if not compiled.only_in_lua and cost_of(compiled, #text) <= COST_CHECKED then
    return c_gmatch(text, pattern)
  end
  local from = 1
  local function advance(after, ...)
    from = after or #text + 2
    return results(text, ...)
  end
  return function()
    if from > #text + 1 then
      return nil
    end
      return advance(with_next(next_match(compiled, text, from)))
  end
end

-- ---- gsub

-- What a string for gsub consists of: texts, and numbers of captures.
local function replacement_parts(text)
  local parts, from = {}, 1
  while true do
    local at = c_find(text, "%", from, true)
    if not at then
      parts[#parts + 1] = sub(text, from)
      return parts
    end
    parts[#parts + 1] = sub(text, from, at - 1)
    local digit = c_match(text, "^%d", at + 1)
    parts[#parts + 1] = digit and tonumber(digit) or (at == #text and "\0" or sub(text, at + 1, at + 1))
    from = at + 2
  end
end

-- What stands for a match, and where the match is: its first and last position and its captures follow `job`.
local function replaced(job, ...)
  local first, last = ...
  if not first then
    return nil
  end
  local whole = sub(job.text, first, last)
  local replacement, count = job.replacement, select("#", ...) - 2
  local value
  if job.kind == "parts" then
    local pieces, captures = {}, { select(3, ...) }
    for i = 1, #replacement do
      local part = replacement[i]
      if type(part) == "number" then
        if part == 0 or (part == 1 and count == 0) then
          part = whole
        elseif part > count then
          fail("invalid capture index")
        else
          part = captures[part]
        end
      end
      pieces[i] = part
    end
    value = concat(pieces)
  elseif job.kind == "table" then
    local key = whole
    if count > 0 then
      key = select(3, ...)
    end
    value = replacement[key]
  elseif count == 0 then
    value = replacement(whole)
  else
    value = replacement(select(3, ...))
  end
  if not value then
    value = whole
  elseif type(value) ~= "string" and type(value) ~= "number" then
    error("invalid replacement value (a " .. type(value) .. ")", 3)
  end
  return value, first, last
end

local function gsub(...)
  local text, pattern, replacement, most = ...
  local given = select("#", ...)
  text, pattern = checked_texts("gsub", text, pattern, given)
  local kind = type(replacement)
  if kind == "number" then
    replacement, kind = tostring(replacement), "string"
  elseif kind ~= "string" and kind ~= "table" and kind ~= "function" then
    refuse(1, "gsub", 3, "string/function/table expected")
  end
  most = most == nil and #text + 1 or check_integer(1, "gsub", 4, most)
  local compiled = compiled_pattern(pattern, true)

  if kind == "string" then
    local missing = (compiled.captures == 0 and 1 or compiled.captures) + 1 -- the first capture that does not exist
    local is_valid = missing > 9 or not c_find(replacement, "%%[" .. missing .. "-9]")
    local cost = cost_of(compiled, #text)
    local reading = (#text + 1) * #replacement -- which is read for each match, also if nothing comes of it
    if is_valid and #text <= REPLACED_MAX and reading <= COST_MAX and is_for_c(compiled, cost) then
      if cost > COST_CHECKED then
        check()
      end
      return c_gsub(text, pattern, replacement, most)
    end
    replacement, kind = replacement_parts(replacement), "parts"
  end

  local job = { text = text, replacement = replacement, kind = kind }
  local pieces, count, from, done = {}, 0, 1, 0
  while done < most do
    local value, first, last = replaced(job, next_match(compiled, text, from))
    if not first then
      break
    end
    done = done + 1
    if first > from then
      pieces[count + 1] = sub(text, from, first - 1)
      count = count + 1
    end
    pieces[count + 1] = value
    count = count + 1
    if last >= first then
      from = last + 1
    elseif first <= #text then -- an empty match: the character after it stays
      pieces[count + 1] = sub(text, first, first)
      count = count + 1
      from = first + 1
    else
      from = first
      break
    end
    if compiled.is_anchored then
      break
    end
  end
  pieces[count + 1] = sub(text, from)
  return concat(pieces, "", 1, count + 1), done
end

return { find = find, match = match, gmatch = gmatch, gsub = gsub }
