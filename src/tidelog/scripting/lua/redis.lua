-- The table `redis`, replies of commands as Lua values, Lua values as replies, and the call of a script.
--
-- Replies travel as RESP: the host encodes what is not plain and this file reads it, and the other way round. So what a
-- script sees of a reply, and a client of a script's, follows from the bytes that a client would have seen.
--
--   RESP                     Lua                                  RESP                        Lua
--   $ bulk, : integer        string, number                       , double        (RESP3)     {double = number}
--   + status                 {ok = text}                          % map                       {map = {...}}
--   - error                  {err = text}                         ~ set                       {set = {member = true}}
--   * array                  table; null is false                 # boolean                   boolean
--   $-1, *-1                 false                                _ null                      nil
--                                                                 ( big number                {big_number = text}
--                                                                 = verbatim                  {verbatim_string = ...}
--
-- Called once per runtime with the parts of the sandbox, the host's functions and its limits.

local box, host_call, host_setresp, host_sha1hex, host_log, host_may_run, version, version_number, depth_max = ...

local raw, globals = box.raw, box.globals
local error, type, select, next, tostring, tonumber = raw.error, raw.type, raw.select, raw.next, raw.tostring, raw.tonumber
local rawget, xpcall, unpack, getmetatable, sethook = raw.rawget, raw.xpcall, raw.unpack, raw.getmetatable, raw.debug.sethook
local gcinfo, collectgarbage, getinfo = raw.gcinfo, raw.collectgarbage, raw.debug.getinfo
local byte, sub, find, format, concat = raw.string.byte, raw.string.sub, raw.string.find, raw.string.format, raw.table.concat
local place, make_room, stop, begin, is_stopped = box.place, box.make_room, box.stop, box.begin, box.is_stopped
local memory_soft_kb, memory_idle_kb = box.memory_soft_kb, box.memory_idle_kb
local memory_full_kb = 2 * memory_soft_kb - 64
local arguments_bytes_max = box.string_bytes_max
local TOO_LARGE = 2

-- What the host answers beside a plain value: true for the status OK; or nil, one of these, and what belongs to it.
local STATUS, FLAT, ENCODED, FAILED, ENDED, MISUSED = 1, 2, 3, 4, 5, 6

local protocol = 2 -- of the script: `redis.setresp`

-- --- replies of commands -----------------------------------------------------------------------------------------

local read -- (text, at) -> value, place behind it

local function read_items(text, at, count)
  local items = {}
  for i = 1, count do
    items[i], at = read(text, at)
  end
  return items, at
end

local readers = {}

function readers.array(text, at, count)
  if count < 0 then return false, at end
  return read_items(text, at, count)
end

function readers.map(text, at, count)
  local map, key = {}, nil
  for _ = 1, count do
    key, at = read(text, at)
    map[key], at = read(text, at)
  end
  return { map = map }, at
end

function readers.set(text, at, count)
  local set, member = {}, nil
  for _ = 1, count do
    member, at = read(text, at)
    set[member] = true
  end
  return { set = set }, at
end

read = function(text, at)
  local kind = byte(text, at)
  local line_end = find(text, "\r\n", at, true)
  local line = sub(text, at + 1, line_end - 1)
  at = line_end + 2
  if kind == 36 then -- $
    local size = tonumber(line)
    if size < 0 then return false, at end
    return sub(text, at, at + size - 1), at + size + 2
  elseif kind == 58 then -- :
    return tonumber(line), at
  elseif kind == 42 then -- *
    return readers.array(text, at, tonumber(line))
  elseif kind == 43 then -- +
    return { ok = line }, at
  elseif kind == 45 then -- -
    return { err = line }, at
  elseif kind == 37 then -- %
    return readers.map(text, at, tonumber(line))
  elseif kind == 126 then -- ~
    return readers.set(text, at, tonumber(line))
  elseif kind == 62 then -- >
    return read_items(text, at, tonumber(line))
  elseif kind == 44 then -- ,
    return { double = tonumber(line) or (line == "inf" and 1 / 0) or (line == "-inf" and -1 / 0) or 0 / 0 }, at
  elseif kind == 35 then -- #
    return line == "t", at
  elseif kind == 95 then -- _
    return nil, at
  elseif kind == 40 then -- (
    return { big_number = line }, at
  elseif kind == 61 then -- =
    local size = tonumber(line)
    return {
      verbatim_string = { format = sub(text, at, at + 2), string = sub(text, at + 4, at + size - 1) },
    }, at + size + 2
  end
  error("internal error: a reply cannot be read", 0)
end

-- --- redis.call --------------------------------------------------------------------------------------------------

local function accept(value, kind, ...)
  if value == true then return { ok = "OK" } end
  if value ~= nil then return value end
  if kind == nil then
    if protocol == 3 then return nil end
    return false
  elseif kind == STATUS then
    return { ok = (...) }
  elseif kind == FLAT then
    return { ... }
  elseif kind == ENCODED then
    return (read((...), 1))
  elseif kind == FAILED then
    return nil, (...), true -- the server has counted it
  elseif kind == MISUSED then
    return nil, (...)
  elseif kind == ENDED then
    stop((...))
  end
end

local api = {}

local FEW = 10
local TOO_MUCH = "ERR the arguments are larger than the memory of a script takes (script-memory-limit)"

-- A string is in memory once however often it is an argument, but the host gets each.
local function is_too_much(...)
  local words, size = { ... }, 0
  for i = 1, #words do
    local word = words[i]
    if type(word) == "string" then size = size + #word end
  end
  return size > arguments_bytes_max
end

local function call_host(...)
  if gcinfo() > memory_soft_kb then make_room() end
  if select("#", ...) > FEW and is_too_much(...) then return nil, TOO_MUCH end
  return accept(host_call(...))
end

function api.call(...)
  local value, problem, is_counted = call_host(...)
  if problem ~= nil then error({ err = problem, ignore_error_stats_update = is_counted }, 0) end
  return value
end

function api.pcall(...)
  local value, problem, is_counted = call_host(...)
  if problem ~= nil then return { err = problem, ignore_error_stats_update = is_counted } end
  return value
end

-- --- the rest of `redis` -----------------------------------------------------------------------------------------

local function fail(text) error({ err = "ERR " .. text }, 0) end

local function reply_table(field, ...)
  local text = ...
  if select("#", ...) ~= 1 or type(text) ~= "string" then
    return { err = "ERR wrong number or type of arguments" }
  end
  return { [field] = text }
end

function api.status_reply(...) return reply_table("ok", ...) end

function api.error_reply(...)
  local reply = reply_table("err", ...)
  local text = reply.err
  if byte(text, 1) == 45 then text = sub(text, 2) end -- the sign itself is optional
  if not find(text, " ", 1, true) then text = "ERR " .. text end
  return { err = text }
end

function api.sha1hex(...)
  if select("#", ...) ~= 1 then fail("wrong number of arguments") end
  local text = ...
  make_room()
  if type(text) == "number" then text = tostring(text) end
  if type(text) ~= "string" then text = "" end
  return host_sha1hex(text)
end

function api.log(...)
  local count = select("#", ...)
  if count < 2 then fail("redis.log() requires two arguments or more.") end
  local level = ...
  if type(level) ~= "number" then fail("First argument must be a number (log level).") end
  if not (level >= 0 and level <= 3) then fail("Invalid debug level.") end
  local words = {}
  for i = 2, count do
    local word = select(i, ...)
    if type(word) == "string" or type(word) == "number" then words[#words + 1] = tostring(word) end
  end
  make_room()
  host_log(level, concat(words, " "))
end

function api.setresp(...)
  if select("#", ...) ~= 1 then fail("redis.setresp() requires one argument.") end
  local wanted = tonumber((...))
  if wanted ~= 2 and wanted ~= 3 then fail("RESP version must be 2 or 3.") end
  protocol = wanted
  host_setresp(wanted)
end

function api.acl_check_cmd(...)
  if select("#", ...) == 0 then fail("Please specify at least one argument for this redis.acl_check_cmd() call") end
  make_room()
  local verdict = host_may_run(...)
  if verdict == nil then fail("Invalid command passed to redis.acl_check_cmd()") end
  return verdict
end

function api.set_repl(...)
  if select("#", ...) ~= 1 then fail("redis.set_repl() requires two arguments.") end
  local flags = ...
  if type(flags) ~= "number" or flags < 0 or flags > 3 then
    fail("Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.")
  end
end

function api.replicate_commands() return true end
function api.breakpoint() return false end
function api.debug() end

api.LOG_DEBUG, api.LOG_VERBOSE, api.LOG_NOTICE, api.LOG_WARNING = 0, 1, 2, 3
api.REPL_NONE, api.REPL_AOF, api.REPL_SLAVE, api.REPL_REPLICA, api.REPL_ALL = 0, 1, 2, 2, 3
api.REDIS_VERSION, api.REDIS_VERSION_NUM = version, version_number

box.add_library("redis", api)
box.redis = api

-- --- replies of scripts ------------------------------------------------------------------------------------------

local client_protocol = 2

local EXACT = 2 ^ 53 -- whole numbers below it are exact
local small_numbers = {} -- as lines: making one takes longer than all the rest
for number = 0, 255 do small_numbers[number] = ":" .. number .. "\r\n" end
local SHORT = 100 -- strings up to here are put together without a list of parts

local function line_of(text) return (raw.string.gsub(text, "[\r\n]", " ")) end

local function integer_text(number)
  -- As a C compiler casts it: towards zero, and what does not fit becomes the smallest number.
  if number ~= number or number >= 9223372036854775808 or number < -9223372036854775808 then
    return "-9223372036854775808"
  end
  if number < 0 then number = -raw.math.floor(-number) else number = raw.math.floor(number) end
  if number == 0 then return "0" end
  return format("%.0f", number)
end

local function double_text(number)
  if number ~= number then return "nan" end
  if number == 1 / 0 then return "inf" elseif number == -1 / 0 then return "-inf" end
  return format("%.17g", number)
end

local function null() return client_protocol == 2 and "$-1\r\n" or "_\r\n" end

local function bulk(text) return "$" .. #text .. "\r\n" .. text .. "\r\n" end

local write -- (value, parts, count, depth) -> count

-- An array of a few strings and whole numbers, which most tables are; nil: it is something else. Without a metatable
-- an index is as good as `rawget`, and many times as fast.
local function plain_array(value)
  if getmetatable(value) ~= nil or value.err or value.ok or value.double or value.map or value.set or value.big_number
    or value.verbatim_string then
    return nil
  end
  local text, count = "", 0
  while count < FEW do
    local item = value[count + 1]
    local kind = type(item)
    if kind == "number" then
      local line = small_numbers[item]
      if not line then
        if item % 1 ~= 0 or item >= EXACT or item <= -EXACT then return nil end
        line = ":" .. format("%d", item) .. "\r\n"
      end
      text = text .. line
    elseif kind == "string" and #item < SHORT then
      text = text .. bulk(item)
    elseif kind == "nil" then
      return "*" .. count .. "\r\n" .. text
    else
      return nil
    end
    count = count + 1
  end
end

local function write_table(value, parts, count, depth)
  if depth > depth_max then
    -- Where it is too deep there stands an error, as in Redis.
    parts[count + 1] = "-ERR reached lua stack limit\r\n"
    return count + 1
  end
  local err = rawget(value, "err")
  if type(err) == "string" then
    parts[count + 1] = "-" .. line_of(err) .. "\r\n"
    return count + 1
  end
  local ok = rawget(value, "ok")
  if type(ok) == "string" then
    parts[count + 1] = "+" .. line_of(ok) .. "\r\n"
    return count + 1
  end
  local double = rawget(value, "double")
  if type(double) == "number" then
    local text = double_text(double)
    parts[count + 1] = client_protocol == 2 and bulk(text) or "," .. text .. "\r\n"
    return count + 1
  end
  local map = rawget(value, "map")
  if type(map) == "table" then
    local head, pairs_count = count + 1, 0
    count = head
    for key, item in next, map do
      count = write(key, parts, count, depth + 1)
      count = write(item, parts, count, depth + 1)
      pairs_count = pairs_count + 1
    end
    parts[head] = client_protocol == 2 and "*" .. 2 * pairs_count .. "\r\n" or "%" .. pairs_count .. "\r\n"
    return count
  end
  local set = rawget(value, "set")
  if type(set) == "table" then
    local head, members = count + 1, 0
    count = head
    for member in next, set do
      count = write(member, parts, count, depth + 1)
      members = members + 1
    end
    parts[head] = (client_protocol == 2 and "*" or "~") .. members .. "\r\n"
    return count
  end
  local big = rawget(value, "big_number")
  if type(big) == "string" then
    big = line_of(big)
    parts[count + 1] = client_protocol == 2 and bulk(big) or "(" .. big .. "\r\n"
    return count + 1
  end
  local verbatim = rawget(value, "verbatim_string")
  if type(verbatim) == "table" then
    local text, kind = rawget(verbatim, "string"), rawget(verbatim, "format")
    if type(text) == "string" and type(kind) == "string" then
      if client_protocol == 2 then
        parts[count + 1] = bulk(text)
      else
        kind = sub(kind .. "   ", 1, 3)
        parts[count + 1] = "=" .. #text + 4 .. "\r\n" .. kind .. ":" .. text .. "\r\n"
      end
      return count + 1
    end
  end
  local head, items = count + 1, 0
  count = head
  while true do
    local item = rawget(value, items + 1)
    if item == nil then break end
    items = items + 1
    count = write(item, parts, count, depth + 1)
  end
  parts[head] = "*" .. items .. "\r\n"
  return count
end

write = function(value, parts, count, depth)
  local kind = type(value)
  if kind == "string" then
    parts[count + 1] = bulk(value)
  elseif kind == "number" then
    parts[count + 1] = ":" .. integer_text(value) .. "\r\n"
  elseif kind == "table" then
    return write_table(value, parts, count, depth)
  elseif kind == "boolean" then
    if protocol == 3 then
      parts[count + 1] = client_protocol == 2 and (value and ":1\r\n" or ":0\r\n") or (value and "#t\r\n" or "#f\r\n")
    else
      parts[count + 1] = value and ":1\r\n" or null()
    end
  else
    parts[count + 1] = null()
  end
  return count + 1
end

-- --- the call of a script ----------------------------------------------------------------------------------------

-- The error that ended the script is one of a command, and the server has counted it.
local is_counted = false

-- What an error becomes, in the place where it is raised.
local function explain(problem)
  is_counted = false
  if type(problem) == "table" then
    is_counted = rawget(problem, "ignore_error_stats_update") == true
  else
    if type(problem) == "userdata" then problem = "internal error" end
    problem = { err = "ERR " .. tostring(problem) }
  end
  local message = rawget(problem, "err")
  if type(message) ~= "string" then message = "ERR unknown error" end
  local source, line = place(2)
  if not source then source, line = "@user_script", 1 end -- a tail call has taken the place of its caller
  message = message .. " script: " .. box.name .. ", on " .. source .. ":" .. line .. "."
  return line_of(message)
end

-- To the host: a string, a whole number or nil as it is; nil and RESP; false, the text of an error, and whether it was
-- counted.
local function answer(ok, value)
  if is_stopped() then error("", 0) end
  if not ok then
    if value == box.no_memory then stop(TOO_LARGE) end
    if type(value) ~= "string" then value = tostring(value) end
    return false, value, is_counted
  end
  local kind = type(value)
  if kind == "string" or kind == "nil" then return value end
  if kind == "number" and value % 1 == 0 and value < EXACT and value > -EXACT then return value end
  if kind == "table" then
    local text = plain_array(value)
    if text then return nil, text end
    local err = rawget(value, "err")
    if type(err) == "string" then
      return false, line_of(err), rawget(value, "ignore_error_stats_update") == true
    end
  end
  local parts = {}
  write(value, parts, 0, 1)
  local reply = concat(parts)
  box.charge(#reply)
  return nil, reply
end

local function finish(...)
  globals.KEYS, globals.ARGV = nil, nil
  sethook()
  if gcinfo() > memory_idle_kb then collectgarbage() end
  return ...
end

local function start(call, name, wanted)
  box.name = name
  protocol, client_protocol = 2, wanted
  begin()
  return finish(answer(xpcall(call, explain)))
end

local pending = {} -- words of a call with very many of them

local function split(words, size, keys_count)
  local keys, values = {}, {}
  for i = 1, keys_count do keys[i] = words[i] end
  for i = keys_count + 1, size do values[i - keys_count] = words[i] end
  return keys, values
end

local function one_key(key, ...) return { key }, { ... } end

local function two_keys(first, second, ...) return { first, second }, { ... } end

local function collect(keys_count, ...)
  if #pending > 0 then
    local words = pending
    pending = {}
    return split(words, #words, keys_count)
  end
  if keys_count == 0 then return {}, { ... } end
  if keys_count == 1 then return one_key(...) end
  if keys_count == 2 then return two_keys(...) end
  local words = { ... }
  return { unpack(words, 1, keys_count) }, { unpack(words, keys_count + 1) }
end

return {
  -- Words of the next call, if they are too many for one.
  add_words = function(...)
    for i = 1, select("#", ...) do pending[#pending + 1] = (select(i, ...)) end
  end,
  -- EVAL: keys and values are globals.
  run_script = function(call, name, wanted, keys_count, ...)
    local keys, values = collect(keys_count, ...)
    globals.KEYS, globals.ARGV = keys, values -- its metatable refuses reading what is not there, nothing else
    return start(call, name, wanted)
  end,
  -- FCALL: keys and values are arguments.
  run_function = function(call, name, wanted, keys_count, ...)
    local keys, values = collect(keys_count, ...)
    return start(function() return call(keys, values) end, name, wanted)
  end,
  compile = function(text)
    local loaded, problem = box.compile(text, "@user_script")
    if gcinfo() > memory_idle_kb then collectgarbage() end -- the host is about to hand over more
    if not loaded then return false, problem end
    if gcinfo() > memory_full_kb then stop(TOO_LARGE) end -- a function that is handed to the host needs a place
    return loaded
  end,
}
