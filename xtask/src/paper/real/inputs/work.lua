-- Tables and strings: a mark for each piece.
local out = assert(io.open(arg[1], "a"))
out:setvbuf("no")
local x = 1
while true do
  local parts = {}
  for i = 1, 3000 do
    x = (x * 1103515245 + 12345) % 2147483648
    parts[#parts + 1] = string.format("%d-%x", i, x)
  end
  table.sort(parts)
  out:write(".")
end
