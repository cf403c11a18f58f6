-- Add marks to fingerprints, and fold programs.
-- KEYS: marks, their last use, folded programs, their last use
-- ARGV: lifetime in seconds, maximum marks per fingerprint, maximum fingerprints, maximum folded
--       programs, number of fingerprints in this call, then fingerprint and mark..., then folded
--       program and its root ('' to unfold)...
local marks_at, marks_used, folds_at, folds_used = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local keep, most, count = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[5])
local AT_ONCE = 1000
local time = redis.call('TIME')
-- With fractions of a second, to order uses within one second.
local now = string.format('%.6f', time[1] + time[2] / 1e6)

local function forget(at, used, field)
  redis.call('HDEL', at, field)
  redis.call('ZREM', used, field)
end

-- Remove expired fields and, over the limit, the least recently used ones; a limited number per
-- call.
local function trim(at, used, limit)
  local old = redis.call('ZRANGEBYSCORE', used, '-inf', '(' .. now - keep, 'LIMIT', 0, AT_ONCE)
  for _, field in ipairs(old) do
    forget(at, used, field)
  end
  local over = math.min(redis.call('ZCARD', used) - limit, AT_ONCE)
  if over > 0 then
    for _, field in ipairs(redis.call('ZRANGE', used, 0, over - 1)) do
      forget(at, used, field)
    end
  end
  redis.call('EXPIRE', at, keep)
  redis.call('EXPIRE', used, keep)
end

for i = 6, 5 + 2 * count, 2 do
  local field, marks = ARGV[i], ARGV[i + 1]
  local before, kept = redis.call('HGET', marks_at, field), 1
  if before then
    for mark in string.gmatch(before, '[^\n]+') do
      if kept < most then
        marks, kept = marks .. '\n' .. mark, kept + 1
      end
    end
  end
  redis.call('HSET', marks_at, field, marks)
  redis.call('ZADD', marks_used, now, field)
end
for i = 6 + 2 * count, #ARGV, 2 do
  if ARGV[i + 1] == '' then
    forget(folds_at, folds_used, ARGV[i])
  else
    redis.call('HSET', folds_at, ARGV[i], ARGV[i + 1])
    redis.call('ZADD', folds_used, now, ARGV[i])
  end
end
trim(marks_at, marks_used, tonumber(ARGV[3]))
trim(folds_at, folds_used, tonumber(ARGV[4]))
