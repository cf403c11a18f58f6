-- Keep what is known of stored answers. Those that are too old go, some with each call of this; and
-- where there are too many, the oldest of the tenant that has most.
-- KEYS: answers, their ages, their order by tenant and age, tenants by number
-- ARGV: now, seconds to keep one, most answers, then member, value...
local answers, ages, order, counts, now = KEYS[1], KEYS[2], KEYS[3], KEYS[4], tonumber(ARGV[1])
local AT_ONCE = 100

for i = 4, #ARGV, 2 do
  displace(ages, order, counts, ARGV[i])
  redis.call('HSET', answers, ARGV[i], ARGV[i + 1])
  redis.call('ZADD', ages, ARGV[1], ARGV[i])
  local place, tenant = place_of(ARGV[i], now)
  redis.call('ZADD', order, 0, place)
  redis.call('ZINCRBY', counts, 1, tenant)
end
local old = redis.call('ZRANGEBYSCORE', ages, '-inf', now - tonumber(ARGV[2]), 'LIMIT', 0, AT_ONCE)
for _, member in ipairs(old) do
  forget_answer(answers, ages, order, counts, member)
end
local over = redis.call('ZCARD', ages) - tonumber(ARGV[3])
for _ = 1, math.min(over, AT_ONCE + (#ARGV - 3) / 2) do
  local most = redis.call('ZREVRANGE', counts, 0, 0)[1]
  local oldest = most and oldest_of(order, most)
  -- What no tenant is known to have was stored by an earlier release.
  forget_answer(answers, ages, order, counts, oldest or redis.call('ZRANGE', ages, 0, 0)[1])
end
return #old
