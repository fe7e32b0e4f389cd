
local function tree(depth)
  if depth == 0 then return {} end
  return { tree(depth - 1), tree(depth - 1) }
end
local function size(t) return t[1] and 1 + size(t[1]) + size(t[2]) or 1 end
local mark = os.clock
local function work()
  local total = 0
  for i = 1, 120 do
    total = total + size(tree(9))
    if i % 30 == 0 then mark() end
  end
  mark()
  local words, state = {}, 42
  for i = 1, 6000 do
    state = (state * 1103515245 + 12345) % 2147483648
    words[i] = ("%08x"):format(state)
  end
  mark()
  table.sort(words)
  local text = table.concat(words, " ")
  mark()
  local sieve, primes = {}, 0
  for i = 2, 20000 do
    if not sieve[i] then
      primes = primes + 1
      for k = i * i, 20000, i do sieve[k] = true end
    end
  end
  mark()
  local Point = {}
  Point.__index = Point
  Point.__add = function(a, b)
    return setmetatable({ x = a.x + b.x, y = a.y * 0.5 + b.y }, Point)
  end
  local p, q = setmetatable({ x = 0, y = 1 }, Point), setmetatable({ x = 1, y = 0.25 }, Point)
  for i = 1, 50000 do
    p = p + q
    if i % 10000 == 0 then mark() end
  end
  mark()
  local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end
  mark()
  local counts = {}
  for word in text:gmatch("%x+") do
    local key = word:sub(1, 3)
    counts[key] = (counts[key] or 0) + 1
  end
  mark()
  local distinct = 0
  for _ in pairs(counts) do distinct = distinct + 1 end
  print(total, #text:gsub("%x%x(%d+)", "<%1>"), primes, p.x, p.y, fib(21), distinct)
end
for i = 1, tonumber(arg[1]) do work() end
