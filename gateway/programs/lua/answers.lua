-- Keep what is known of stored answers. The oldest go when there are too many or they are too old,
-- some with each call of this.
-- KEYS: answers, their ages   ARGV: now, seconds to keep one, most answers, then member, value...
local answers, ages, now = KEYS[1], KEYS[2], tonumber(ARGV[1])
local AT_ONCE = 100

for i = 4, #ARGV, 2 do
  redis.call('HSET', answers, ARGV[i], ARGV[i + 1])
  redis.call('ZADD', ages, now, ARGV[i])
end
local old = redis.call('ZRANGEBYSCORE', ages, '-inf', now - tonumber(ARGV[2]), 'LIMIT', 0, AT_ONCE)
local over = redis.call('ZCARD', ages) - #old - tonumber(ARGV[3])
if over > 0 then
  local last = #old + math.min(over, AT_ONCE + (#ARGV - 3) / 2) - 1
  old = redis.call('ZRANGE', ages, 0, last)
end
for _, member in ipairs(old) do
  redis.call('HDEL', answers, member)
  redis.call('ZREM', ages, member)
end
return #old
