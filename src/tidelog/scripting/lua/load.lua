-- Loads the libraries of this folder from their sources: before anything is taken away from scripts.
--
-- Gets a table of the sources by name, and a function that raises when the script's time is over (or nil). Returns a
-- table of the libraries by name; `reset_cjson` sets the settings of `cjson` as they were at first.

local sources, check = ...

local host = {
  error = error, type = type, next = next, select = select, unpack = unpack, tostring = tostring, tonumber = tonumber,
  rawget = rawget, setmetatable = setmetatable, getmetatable = getmetatable, newproxy = newproxy,
  getinfo = debug.getinfo, check = check, string = {}, table = {}, math = {},
}
for _, library in next, { "string", "table", "math" } do -- copies: what scripts see may change
  for name, value in next, _G[library] do
    host[library][name] = value
  end
end

local function load(name)
  return assert(loadstring(sources[name], "=" .. name))(host)
end

host.arguments = load("arguments")
host.floats = load("floats")
local cjson, reset_cjson = load("cjson")
return {
  cjson = cjson, reset_cjson = reset_cjson, cmsgpack = load("cmsgpack"), bit = load("bit"), struct = load("struct"),
  patterns = load("patterns"),
}
