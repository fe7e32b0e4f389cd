-- Closures, matrices, queens, a queue and text that is taken apart; the same each time. Garbage is
-- collected behind each round: the collector's own moments depend on the length of the program's path.
collectgarbage("stop")
local function matrix(n, seed)
  local rows = {}
  for i = 1, n do
    rows[i] = {}
    for k = 1, n do rows[i][k] = (i * seed + k * 7) % 13 - 6.5 end
  end
  return rows
end
local function product(a, b)
  local n, rows = #a, {}
  for i = 1, n do
    local row, left = {}, a[i]
    for k = 1, n do
      local sum = 0.0
      for j = 1, n do sum = sum + left[j] * b[j][k] end
      row[k] = sum
    end
    rows[i] = row
  end
  return rows
end
local function queens(n)
  local columns, up, down, found = {}, {}, {}, 0
  local function place(row)
    if row > n then found = found + 1 return end
    for column = 1, n do
      if not (columns[column] or up[row + column] or down[row - column]) then
        columns[column], up[row + column], down[row - column] = true, true, true
        place(row + 1)
        columns[column], up[row + column], down[row - column] = nil, nil, nil
      end
    end
  end
  place(1)
  return found
end
local function counter()
  local value = 0
  return { add = function(by) value = value + by end, get = function() return value end }
end
local mark = os.clock
local function work(round)
  local squared = product(matrix(40, round), matrix(40, round + 1))
  mark()
  local found = queens(7)
  mark()
  local counters = {}
  for i = 1, 200 do counters[i] = counter() end
  for i = 1, 30000 do counters[i % 200 + 1].add(i & 7) end
  mark()
  local queue, first, last, total = {}, 1, 0, 0
  for i = 1, 20000 do
    last = last + 1
    queue[last] = { key = i, name = "job" .. i % 97 }
    if i % 3 == 0 then
      total = total + queue[first].key + #queue[first].name
      queue[first] = nil
      first = first + 1
    end
  end
  mark()
  local lines = {}
  for i = 1, 1500 do lines[i] = string.format("%d;%s;%.3f;%q", i, ("ab"):rep(i % 9), i / 7, "x\ty") end
  local text, sum = table.concat(lines, "\n"), 0
  for number, word in text:gmatch("(%d+);(%a*);") do sum = sum + tonumber(number) + #word end
  mark()
  local words = {}
  for word in text:upper():gsub("[;%.]", " "):gmatch("%S+") do words[#words + 1] = word:reverse() end
  table.sort(words, function(a, b) return #a < #b or (#a == #b and a < b) end)
  mark()
  local resumed, thread = 0, coroutine.wrap(function() for i = 1, 5000 do coroutine.yield(i) end end)
  for _ = 1, 5000 do resumed = resumed + thread() end
  print(squared[3][4], found, counters[5].get(), total, sum, words[#words // 2], resumed)
end
for round = 1, 28 do
  work(round)
  collectgarbage()
end
