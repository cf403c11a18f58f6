-- What is known of fingerprints.
-- KEYS: fingerprints
-- ARGV: what the keys of folded programs begin with, seconds to keep what is used
-- One string: a line for each mark, after the number of its key; a line for each folded program.
local folds, keep = ARGV[1], ARGV[2]
local lines, programs = {}, {}

local function look(first, last)
  local found = redis.call('MGET', unpack(KEYS, first, last))
  for i, marks in ipairs(found) do
    if marks then
      redis.call('EXPIRE', KEYS[first + i - 1], keep)
      for mark in string.gmatch(marks, '[^\n]+') do
        lines[#lines + 1] = (first + i - 1) .. ' ' .. mark
        programs[string.match(mark, '%S+$')] = true
      end
    end
  end
end

for first = 1, #KEYS, 500 do
  look(first, math.min(first + 499, #KEYS))
end
for program in pairs(programs) do
  local into, steps = program, 0
  while steps < 8 do
    local next_one = redis.call('GET', folds .. into)
    if not next_one then
      break
    end
    redis.call('EXPIRE', folds .. into, keep)
    into, steps = next_one, steps + 1
  end
  if into ~= program then
    lines[#lines + 1] = 'f ' .. program .. ' ' .. into
  end
end
return table.concat(lines, '\n')
