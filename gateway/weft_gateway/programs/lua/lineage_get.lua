-- Look up fingerprints.
-- KEYS: marks, their last use, folded programs, their last use
-- ARGV: tenant and a slash, lifetime of unused fields in seconds, the fingerprints, 16 digits each:
--       one argument, because sending many takes a client longer than the lookup
-- Returns one string: a line per mark, after the number of its fingerprint; a line per folded
-- program.
local marks_at, marks_used, folds_at, folds_used = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local tenant, keep, wanted = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local lines, programs, time = {}, {}, redis.call('TIME')
local now = tonumber(time[1])

-- Whether a field has not expired. Records its use, but not more often than needed.
local function fresh(used, field)
  local last = tonumber(redis.call('ZSCORE', used, field) or '0')
  if last < now - keep then
    return false
  end
  if last < now - keep / 16 then
    redis.call('ZADD', used, now, field)
  end
  return true
end

local function look(first, last)
  local fields = {}
  for number = first, last do
    fields[#fields + 1] = tenant .. string.sub(wanted, 16 * number - 15, 16 * number)
  end
  for i, marks in ipairs(redis.call('HMGET', marks_at, unpack(fields))) do
    if marks and fresh(marks_used, fields[i]) then
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
    local next_one = redis.call('HGET', folds_at, tenant .. into)
    if not next_one or not fresh(folds_used, tenant .. into) then
      break
    end
    into, steps = next_one, steps + 1
  end
  if into ~= program then
    lines[#lines + 1] = 'f ' .. program .. ' ' .. into
  end
end
return table.concat(lines, '\n')
