-- Libraries of functions: their code runs once, when it is loaded, and registers functions that FCALL calls later.
--
-- A library keeps what is local to it from call to call; its globals cannot be set. While its code runs it sees only
-- what it needs to register functions. Errors of `redis.register_function` have Redis's texts.
--
-- Called once per runtime with the parts of the sandbox. Python asks for functions by their names; none leaves Lua.

local box, FUNCTIONS_MAX = ...

local raw, globals = box.raw, box.globals
local error, type, next, rawget, select, tostring = raw.error, raw.type, raw.next, raw.rawget, raw.select, raw.tostring
local find, lower, setfenv, setmetatable, xpcall = raw.string.find, raw.string.lower, raw.setfenv, raw.setmetatable, raw.xpcall

local loaded = {} -- name of a library -> its functions, by their names in small letters
local is_loading = false
local pending -- the same for the library that was loaded last and is not taken yet

local function fail(text) error({ err = "ERR " .. text }, 0) end

local function missing(_, name)
  error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
end

local BAD_NAME = "Library names can only contain letters, numbers, or underscores(_) and must be at least one character long"
local FLAGS = {
  ["no-writes"] = true, ["allow-oom"] = true, ["allow-stale"] = true, ["no-cluster"] = true,
  ["allow-cross-slot-keys"] = true,
}

local function read_flags(flags)
  local list = {}
  for i = 1, 100 do
    local flag = rawget(flags, i)
    if flag == nil then return raw.table.concat(list, " ") end
    if type(flag) ~= "string" or not FLAGS[flag] then fail("unknown flag given") end
    list[i] = flag
  end
  fail("unknown flag given")
end

local function is_text(value) return type(value) == "string" or type(value) == "number" end

-- The form with named arguments.
local function read_named(given)
  local entry = { flags = "" }
  for key, value in next, given do
    if key == "function_name" then
      if not is_text(value) then fail("function_name argument given to redis.register_function must be a string") end
      entry.name = tostring(value)
    elseif key == "description" then
      if not is_text(value) then fail("description argument given to redis.register_function must be a string") end
      entry.description = tostring(value)
    elseif key == "callback" then
      if type(value) ~= "function" then fail("callback argument given to redis.register_function must be a function") end
      entry.callback = value
    elseif key == "flags" then
      if type(value) ~= "table" then
        fail("flags argument to redis.register_function must be a table representing function flags")
      end
      entry.flags = read_flags(value)
    elseif not is_text(key) then
      fail("named argument key given to redis.register_function is not a string")
    else
      fail("unknown argument given to redis.register_function")
    end
  end
  if not entry.name then fail("redis.register_function must get a function name argument") end
  if not entry.callback then fail("redis.register_function must get a callback argument") end
  return entry
end

local function register_function(...)
  if not is_loading then fail("redis.register_function can only be called on FUNCTION LOAD command") end
  local given = select("#", ...)
  if given < 1 or given > 2 then fail("wrong number of arguments to redis.register_function") end
  local first, second = ...
  local entry
  if given == 1 then
    if type(first) ~= "table" then
      fail("calling redis.register_function with a single argument is only applicable to Lua table "
        .. "(representing named arguments).")
    end
    entry = read_named(first)
  else
    if not is_text(first) then fail("first argument to redis.register_function must be a string") end
    if type(second) ~= "function" then fail("second argument to redis.register_function must be a function") end
    entry = { name = tostring(first), callback = second, flags = "" }
  end
  if not find(entry.name, "^[%w_]+$") then fail(BAD_NAME) end
  local key = lower(entry.name)
  if pending.functions[key] then fail("Function already exists in the library") end
  if pending.count == FUNCTIONS_MAX then fail("a library has at most " .. FUNCTIONS_MAX .. " functions") end
  pending.functions[key] = entry
  pending.count = pending.count + 1
  pending.list[pending.count] = entry
end

local of_redis = {}
for name, value in next, box.redis do
  if type(value) ~= "function" then of_redis[name] = value end
end
of_redis.log, of_redis.register_function = box.redis.log, register_function
setmetatable(of_redis, { __index = missing })
local while_loading = { redis = box.protect(of_redis) }

-- What a library sees as its globals: little while it is loaded, then what scripts see.
local function new_environment(state)
  return setmetatable({}, {
    __index = function(_, name)
      local value = rawget(state.sees, name)
      if value == nil then
        error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
      end
      return value
    end,
    __newindex = function() error("Attempt to modify a readonly table", 2) end,
    __metatable = false,
  })
end

local function explain(problem)
  if type(problem) == "table" then
    local text = rawget(problem, "err")
    return type(text) == "string" and text or "ERR unknown error"
  end
  return "ERR " .. tostring(problem)
end

local function described(ok, problem)
  if box.is_stopped() then error("", 0) end
  raw.debug.sethook()
  if raw.gcinfo() > box.memory_idle_kb then raw.collectgarbage() end -- the host is about to hand over more
  if not ok then return false, "Error registering functions: " .. tostring(problem) end
  if pending.count == 0 then return false, "No functions registered" end
  local parts = {}
  for i = 1, pending.count do
    local entry = pending.list[i]
    parts[3 * i - 2], parts[3 * i - 1], parts[3 * i] = entry.name, entry.flags, entry.description or false
  end
  return true, raw.unpack(parts, 1, 3 * pending.count)
end

return {
  -- Runs the code of a library. True and name, flags and description (or false) of each function; false and a problem.
  load = function(code)
    pending = { functions = {}, list = {}, count = 0 }
    box.begin()
    local chunk, problem = box.compile(code, "@user_function")
    if not chunk then
      raw.debug.sethook()
      return false, "Error compiling function: " .. tostring(problem)
    end
    local state = { sees = while_loading }
    setfenv(chunk, new_environment(state))
    is_loading = true
    local ok, message = xpcall(chunk, explain)
    is_loading = false
    state.sees = globals
    return described(ok, message)
  end,
  -- The library that was loaded last counts under this name.
  take = function(name) loaded[name] = pending.functions end,
  remove = function(name) loaded[name] = nil end,
  -- A function of a library, to be run.
  find = function(library, name)
    local functions = loaded[library]
    local entry = functions and functions[name]
    return entry and entry.callback
  end,
}
