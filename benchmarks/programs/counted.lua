
local function tree(depth)
  if depth == 0 then return {} end
  return { tree(depth - 1), tree(depth - 1) }
end
local function size(t) return t[1] and 1 + size(t[1]) + size(t[2]) or 1 end
local total = 0
for i = 1, 10 do total = total + size(tree(12)) end
local words, state = {}, 42
for i = 1, 20000 do
  state = (state * 1103515245 + 12345) % 2147483648
  words[i] = ("%08x"):format(state)
end
table.sort(words)
print(total, #table.concat(words, " "):gsub("%x%x(%d+)", "<%1>"))
