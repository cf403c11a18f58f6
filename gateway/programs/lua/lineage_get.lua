-- What is known of fingerprints.
-- KEYS: the list of all fingerprints, which says where the others are
-- ARGV: what the keys of fingerprints begin with, what those of folded programs begin with, seconds
--       to keep what is used, the fingerprints, 16 digits each: one argument, since a client takes
--       longer to send many than this takes to look them up
-- One string: a line for each mark, after the number of its fingerprint; a line for each folded
-- program.
local base, folds, keep, wanted = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local lines, programs = {}, {}

local function look(first, last)
  local keys = {}
  for number = first, last do
    keys[#keys + 1] = base .. string.sub(wanted, 16 * number - 15, 16 * number)
  end
  for i, marks in ipairs(redis.call('MGET', unpack(keys))) do
    if marks then
      redis.call('EXPIRE', keys[i], keep)
      for mark in string.gmatch(marks, '[^\n]+') do
        lines[#lines + 1] = (first + i - 1) .. ' ' .. mark
        programs[string.match(mark, '%S+$')] = true
      end
    end
  end
end

local count = #wanted / 16
for first = 1, count, 500 do
  look(first, math.min(first + 499, count))
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
