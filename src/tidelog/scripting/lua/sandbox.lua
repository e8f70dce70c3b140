-- The sandbox: everything that a script can reach, and how a script is stopped.
--
-- A script sees `environment`, an empty table that reads from `globals` and takes no assignment. Libraries are empty
-- tables of the same kind, so nothing that one script does can be seen by another. The real tables, the functions of
-- the host (Python) and the debug library are upvalues: no script can get hold of them, or of any userdata.
--
-- A script is stopped by a count hook. Once `is_stopped` is set, nothing of the script runs on: the hook raises at
-- every instruction, and everything that catches errors (pcall, xpcall, coroutines) raises again. Hooks do not fire
-- inside C, so functions whose work grows with their arguments look at the clock themselves (`charge`).
--
-- Called once per runtime with: the host's functions and its limits. Returns the parts that other files build on.

local check_clock, note_stop, vet_source, memory_soft_kb, memory_idle_kb, string_bytes_max, first_seed, libraries = ...

local raw = {
  debug = debug, error = error, pcall = pcall, xpcall = xpcall, type = type, select = select, next = next,
  pairs = pairs, rawget = rawget, rawset = rawset, tostring = tostring, tonumber = tonumber, unpack = unpack,
  getmetatable = getmetatable, setmetatable = setmetatable, loadstring = loadstring, setfenv = setfenv,
  gcinfo = gcinfo, collectgarbage = collectgarbage, string = string, table = table, math = math,
  coroutine = coroutine, os = os,
}
local sethook, getinfo = debug.sethook, debug.getinfo
local error, pcall, xpcall, type, select, next = error, pcall, xpcall, type, select, next
local rawget, rawset, tostring, unpack = rawget, rawset, tostring, unpack
local getmetatable, setmetatable, loadstring, setfenv = getmetatable, setmetatable, loadstring, setfenv
local gcinfo, collectgarbage, floor, byte = gcinfo, collectgarbage, math.floor, string.byte
local resume, create, status, yield = coroutine.resume, coroutine.create, coroutine.status, coroutine.yield

local READONLY = "Attempt to modify a readonly table"
local NO_MEMORY = "not enough memory" -- the text of Lua itself
local STOPPED = "the script was stopped"
local EQUALS = 61 -- names of chunks of ours begin with it, those of scripts with an @ or as their text does

-- Verdicts of `check_clock`.
local SLOW, OVER = 1, 2
-- Reasons for `note_stop`.
local TOO_LONG, TOO_LARGE = 1, 2
-- Instructions between two calls of the hook; between two looks at the clock; after an interval that took long.
local STEPS, CALLS, STEPS_WHEN_SLOW = 100, 20, 10
-- What a function may do without a look at the clock.
local FREE_WORK = 4096

-- --- stopping ----------------------------------------------------------------------------------------------------

local is_stopped = false
local steps, calls = STEPS, 0
local hook

-- The place in the script that is running: the innermost function that is not one of ours.
local function place(level)
  for at = level, level + 30 do
    local info = getinfo(at, "Sl")
    if not info then return nil, 0 end
    if info.currentline > 0 and byte(info.source, 1) ~= EQUALS then return info.source, info.currentline end
  end
  return nil, 0
end

local function stop(reason)
  note_stop(reason, 0)
  local _, line = place(3) -- for which there may be no memory
  note_stop(reason, line)
  is_stopped = true
  sethook(hook, "", 1)
  error(STOPPED, 0)
end

hook = function()
  if is_stopped then error(STOPPED, 0) end
  calls = calls + 1
  if calls < CALLS and gcinfo() < memory_idle_kb then return end
  calls = 0
  local verdict = check_clock()
  if verdict == OVER then
    stop(TOO_LONG)
  elseif verdict == SLOW then
    if steps == STEPS then
      steps = STEPS_WHEN_SLOW
      sethook(hook, "", steps)
    end
  elseif steps ~= STEPS then
    steps = STEPS
    sethook(hook, "", steps)
  end
end

-- Pay for work that is done inside C.
local function charge(work)
  if work > FREE_WORK and check_clock() == OVER then stop(TOO_LONG) end
end

-- Before the host puts something into memory: it must never find it full.
local function make_room()
  if gcinfo() > memory_soft_kb then
    collectgarbage()
    if gcinfo() > memory_soft_kb then stop(TOO_LARGE) end
  end
end

-- The results of a call that catches errors.
local function settle(ok, ...)
  if is_stopped then error(STOPPED, 0) end
  if not ok then
    local problem = ...
    if problem == NO_MEMORY then stop(TOO_LARGE) end
    -- Where calls are nested as deep as can be, the hook itself fails, with an error like any other.
    if check_clock() == OVER then stop(TOO_LONG) end
    if type(problem) == "userdata" then return false, "internal error" end
  end
  return ok, ...
end

-- --- tables that cannot be changed -------------------------------------------------------------------------------

local real_of = setmetatable({}, { __mode = "k" }) -- what a script sees -> what it reads from

local function refuse_change() error(READONLY, 2) end

local function protect(real)
  local seen = {}
  real_of[seen] = real
  return setmetatable(seen, { __index = real, __newindex = refuse_change, __metatable = false })
end

local function check_writable(value)
  if real_of[value] then error(READONLY, 3) end
end

local function argument_error(number, name, wanted, value)
  local given = value == nil and "no value" or type(value)
  error("bad argument #" .. number .. " to '" .. name .. "' (" .. wanted .. " expected, got " .. given .. ")", 3)
end

-- --- functions ---------------------------------------------------------------------------------------------------

local globals, environment = {}, nil

-- As in Redis, the error of a command reaches `pcall` as its message.
local function settle_pcall(ok, ...)
  ok = settle(ok, ...)
  if not ok then
    local problem = ...
    if type(problem) == "table" then
      local message = rawget(problem, "err")
      if type(message) == "string" then return false, message end
    elseif type(problem) == "userdata" then
      return false, "internal error"
    end
  end
  return ok, ...
end

function globals.pcall(...)
  if select("#", ...) == 0 then error("bad argument #1 to 'pcall' (value expected)", 2) end
  return settle_pcall(pcall(...))
end

-- The handler runs after the error has unwound the stack, which no script can tell. In the place of the error it might
-- be inside the hook (which fails where calls are nested as deep as can be), and there nothing stops it.
local function settle_xpcall(handler, ok, ...)
  if ok then return true, ... end
  local _, problem = settle(pcall(handler, (...)))
  return false, problem
end

function globals.xpcall(...)
  if select("#", ...) < 2 then error("bad argument #2 to 'xpcall' (value expected)", 2) end
  local call, handler = ...
  return settle_xpcall(handler, settle(pcall(call)))
end

for _, name in next, { "assert", "error", "ipairs", "rawequal", "select", "tonumber", "tostring", "type" } do
  globals[name] = _G[name]
end

function globals.next(t, key)
  if type(t) ~= "table" then argument_error(1, "next", "table", t) end
  return next(real_of[t] or t, key)
end

function globals.pairs(t)
  if type(t) ~= "table" then argument_error(1, "pairs", "table", t) end
  local real = real_of[t]
  if real then
    return function(_, key) return next(real, key) end, t, nil
  end
  return next, t, nil
end

function globals.rawget(t, key)
  if type(t) ~= "table" then argument_error(1, "rawget", "table", t) end
  return rawget(real_of[t] or t, key)
end

function globals.rawset(t, key, value)
  if type(t) ~= "table" then argument_error(1, "rawset", "table", t) end
  if real_of[t] then error(READONLY, 0) end
  return rawset(t, key, value)
end

local string_metatable

function globals.getmetatable(value)
  if type(value) == "string" then return string_metatable end
  if real_of[value] then return nil end
  return getmetatable(value)
end

function globals.setmetatable(t, metatable)
  if type(t) ~= "table" then argument_error(1, "setmetatable", "table", t) end
  if real_of[t] then error(READONLY, 0) end
  return setmetatable(t, metatable)
end

function globals.unpack(t, first, last)
  if type(t) ~= "table" then argument_error(1, "unpack", "table", t) end
  first, last = first or 1, last or #t
  if not (last - first < 7000) or first < -2147483000 or last > 2147483000 then
    error("too many results to unpack", 2)
  end
  return unpack(t, first, last)
end

function globals.gcinfo() return gcinfo(), 0 end

function globals.collectgarbage(option)
  return option == "count" and collectgarbage("count") or 0
end

local PROBLEMS = {
  "precompiled code is not allowed",
  "the text is too long",
  "there are too many branches in it (and, or, elseif, break)",
  "a function with '...' takes at most 2 other parameters",
  "there are too many names in it within functions with many local names",
  "there are too many different names, strings and numbers in it",
}

local function compile(text, name)
  make_room()
  local problem = PROBLEMS[vet_source(text)]
  if problem then return nil, problem end
  local loaded, message = loadstring(text, name)
  charge(#text)
  if not loaded then
    if message == NO_MEMORY then stop(TOO_LARGE) end
    return nil, message
  end
  return setfenv(loaded, environment)
end

function globals.loadstring(text, name)
  if type(text) ~= "string" then argument_error(1, "loadstring", "string", text) end
  return compile(text, name or text)
end

function globals.load(read, name)
  if type(read) ~= "function" then argument_error(1, "load", "function", read) end
  local parts, size = {}, 0
  while true do
    local part = read()
    if part == nil or part == "" then break end
    if type(part) ~= "string" then return nil, "reader function must return a string" end
    if #parts == 0 and byte(part, 1) == 27 then return nil, PROBLEMS[1] end
    parts[#parts + 1] = part
    size = size + #part
    if size > string_bytes_max then return nil, PROBLEMS[2] end
  end
  return compile(raw.table.concat(parts), name or "=(load)")
end

globals._VERSION = _VERSION

-- --- coroutines --------------------------------------------------------------------------------------------------

local coroutines = { resume = nil, running = coroutine.running, status = status, yield = yield }

function coroutines.create(call)
  if type(call) ~= "function" then argument_error(1, "create", "function", call) end
  local made = create(call)
  sethook(made, hook, "", STEPS) -- a thread has a hook of its own
  return made
end

-- The count of instructions begins anew in each thread, so resuming one counts as well: a tree of short ones would
-- never be stopped.
function coroutines.resume(...)
  hook()
  return settle(resume(...))
end

local function unwrap(ok, ...)
  if ok then return ... end
  local problem = ...
  error(problem, type(problem) == "string" and 3 or 0)
end

function coroutines.wrap(call)
  local made = coroutines.create(call)
  return function(...)
    hook()
    return unwrap(settle(resume(made, ...)))
  end
end

-- --- strings -----------------------------------------------------------------------------------------------------

local strings = {}
for _, name in next, { "byte", "char", "len", "sub", "find", "match", "gmatch", "gsub" } do
  strings[name] = string[name]
end

for _, name in next, { "upper", "lower", "reverse" } do
  local work = string[name]
  strings[name] = function(text)
    if type(text) == "string" then charge(#text) end
    return work(text)
  end
end

local rep, format, gsub = string.rep, string.format, string.gsub

function strings.rep(text, count)
  if type(text) == "number" then text = tostring(text) end
  if type(text) ~= "string" then argument_error(1, "rep", "string", text) end
  count = raw.tonumber(count)
  if not count then argument_error(2, "rep", "number", count) end
  if #text == 0 or count < 1 then return "" end
  if #text * count > string_bytes_max then error("the result of string.rep is too long", 2) end
  charge(#text * count)
  return rep(text, count)
end

-- A function of C that makes a string: it pays for the result, and its errors have the place of its caller.
local function making(name, call)
  local function accept(ok, made, ...)
    if ok then
      charge(#made)
      return made, ...
    end
    if made == NO_MEMORY then stop(TOO_LARGE) end
    made = gsub(made, "'%?'", "'" .. name .. "'", 1)
    error(made, 3)
  end
  return function(...) return (accept(pcall(call, ...))) end
end

strings.format = making("format", format)

-- --- tables ------------------------------------------------------------------------------------------------------

-- Where the work may be large it is done in Lua, where the hook fires.
local tables = { getn = table.getn }
local insert, remove, concat, sort = table.insert, table.remove, table.concat, table.sort

function tables.maxn(t)
  if type(t) ~= "table" then argument_error(1, "maxn", "table", t) end
  local greatest = 0
  for key in next, t do
    if type(key) == "number" and key > greatest then greatest = key end
  end
  return greatest
end

function tables.foreach(t, call)
  if type(t) ~= "table" then argument_error(1, "foreach", "table", t) end
  if type(call) ~= "function" then argument_error(2, "foreach", "function", call) end
  for key, value in next, real_of[t] or t do
    local result = call(key, value)
    if result ~= nil then return result end
  end
end

function tables.foreachi(t, call)
  if type(t) ~= "table" then argument_error(1, "foreachi", "table", t) end
  if type(call) ~= "function" then argument_error(2, "foreachi", "function", call) end
  for i = 1, #t do
    local result = call(i, rawget(t, i))
    if result ~= nil then return result end
  end
end

function tables.insert(t, ...)
  if type(t) ~= "table" then argument_error(1, "insert", "table", t) end
  check_writable(t)
  local given = select("#", ...)
  if given == 1 then return insert(t, (...)) end
  if given ~= 2 then error("wrong number of arguments to 'insert'", 2) end
  local at, value = ...
  local place = raw.tonumber(at)
  if not place then argument_error(2, "insert", "number", at) end
  place = floor(place)
  local size = #t
  if place >= 1 and place <= size + 1 and size - place <= FREE_WORK then return insert(t, place, value) end
  for i = size, place, -1 do rawset(t, i + 1, rawget(t, i)) end
  rawset(t, place, value)
end

function tables.remove(t, at)
  if type(t) ~= "table" then argument_error(1, "remove", "table", t) end
  check_writable(t)
  if at == nil then return remove(t) end
  local place = raw.tonumber(at)
  if not place then argument_error(2, "remove", "number", at) end
  place = floor(place)
  local size = #t
  if not (place >= 1 and place <= size) then return end
  if size - place <= FREE_WORK then return remove(t, place) end
  local found = rawget(t, place)
  for i = place, size - 1 do rawset(t, i, rawget(t, i + 1)) end
  rawset(t, size, nil)
  return found
end

tables.concat = making("concat", concat)

local function is_less(one, other) return one < other end

function tables.sort(t, compare)
  if type(t) ~= "table" then argument_error(1, "sort", "table", t) end
  check_writable(t)
  if #t > 256 then -- so that the hook fires
    if compare == nil then
      compare = is_less
    elseif type(compare) == "function" and getinfo(compare, "S").what == "C" then
      local call = compare
      compare = function(one, other) return (call(one, other)) end
    end
  end
  return sort(t, compare)
end

function tables.setn() error("'setn' is obsolete", 2) end

-- --- numbers -----------------------------------------------------------------------------------------------------

local numbers = {}
for name, value in next, math do numbers[name] = value end

-- drand48, as Redis has it. The state is 48 bits in two halves; a seed holds for the script that sets it.
local high, low = 0, 0
local own_high, own_low -- the state before a script set a seed

local function seed(number)
  number = number % 4294967296
  high, low = floor(number / 256), (number % 256) * 65536 + 0x330E
end

seed(first_seed)

local function draw()
  -- state * 0x5DEECE66D + 0xB, modulo 2^48: no product here reaches 2^53, so all are exact
  local product = low * 0xECE66D + 0xB
  high = (high * 0xECE66D + low * 0x5DE + floor(product / 16777216)) % 16777216
  low = product % 16777216
  return high * 128 + floor(low / 131072)
end

function numbers.random(first, last)
  local drawn = (draw() % 2147483647) / 2147483647
  if first == nil then return drawn end
  first = floor(raw.tonumber(first) or argument_error(1, "random", "number", first))
  if last == nil then first, last = 1, first end
  last = floor(raw.tonumber(last) or argument_error(2, "random", "number", last))
  if first > last then error("bad argument #2 to 'random' (interval is empty)", 2) end
  return floor(drawn * (last - first + 1)) + first
end

function numbers.randomseed(number)
  own_high, own_low = own_high or high, own_low or low
  seed(floor(raw.tonumber(number) or argument_error(1, "randomseed", "number", number)))
end

-- --- the environment ---------------------------------------------------------------------------------------------

setmetatable(globals, {
  __index = function(_, name)
    error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
  end,
})
environment = protect(globals)
globals._G = environment

local function add_library(name, functions) rawset(globals, name, protect(functions)) end

add_library("coroutine", coroutines)
add_library("string", strings)
add_library("table", tables)
add_library("math", numbers)
add_library("os", { clock = os.clock })
local reset_libraries = function() end
if libraries then
  for _, name in next, { "cjson", "cmsgpack", "bit", "struct" } do add_library(name, libraries[name]) end
  for name, call in next, libraries.patterns do strings[name] = call end
  reset_libraries = libraries.reset_cjson or reset_libraries
end

-- Methods of strings read from the same functions; what a script sees of their metatable cannot be changed.
local of_strings = getmetatable("")
of_strings.__index = strings
of_strings.__metatable = false
string_metatable = protect({ __index = globals.string })

-- Nothing of this is used again but by the host itself.
local everything = _G
for name in next, raw do everything[name] = nil end
for _, name in next, { "python", "io", "package", "require", "module", "dofile", "loadfile", "load", "print", "newproxy",
  "getfenv", "_G", "assert", "ipairs", "rawequal" } do
  everything[name] = nil
end

return {
  raw = raw, globals = globals, environment = environment, strings = strings,
  protect = protect, add_library = add_library, charge = charge, make_room = make_room, stop = stop, settle = settle,
  place = place, memory_soft_kb = memory_soft_kb, memory_idle_kb = memory_idle_kb, no_memory = NO_MEMORY,
  string_bytes_max = string_bytes_max,
  compile = compile, check_time = function() charge(FREE_WORK + 1) end,
  is_stopped = function() return is_stopped end,
  -- A script begins.
  begin = function()
    steps, calls = STEPS, 0
    if own_high then
      high, low = own_high, own_low
      own_high, own_low = nil, nil
    end
    reset_libraries()
    sethook(hook, "", STEPS)
  end,
}
