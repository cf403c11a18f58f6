-- Keep what is known of stored answers. Those that are too old go, some with each call of this; and
-- where there are too many, the oldest of the tenant that has most. Returns those that are not kept:
-- another tenant had an answer with their id first.
-- KEYS: answers, their ages, tenants by number, what the keys of a tenant's ages begin with, owners
-- ARGV: now, seconds to keep one, most answers, then member, value...
local answers, ages, tenants, of_tenant, now = KEYS[1], KEYS[2], KEYS[3], KEYS[4], tonumber(ARGV[1])
local owners = KEYS[5]
local AT_ONCE = 100
local others = {}

local function keep(member, packed)
  local tenant, id = string.match(member, '^[^/]*'), owned(member)
  if id and redis.call('HSETNX', owners, id, tenant) == 0
      and redis.call('HGET', owners, id) ~= tenant then
    others[#others + 1] = member
    return
  end
  redis.call('HSET', answers, member, packed)
  redis.call('ZADD', ages, now, member)
  if redis.call('ZADD', of_tenant .. tenant, now, member) == 1 then
    redis.call('ZINCRBY', tenants, 1, tenant)
  end
  redis.call('EXPIRE', of_tenant .. tenant, math.ceil(tonumber(ARGV[2])) + 1)
end

for i = 4, #ARGV, 2 do
  keep(ARGV[i], ARGV[i + 1])
end
local old = redis.call('ZRANGEBYSCORE', ages, '-inf', now - tonumber(ARGV[2]), 'LIMIT', 0, AT_ONCE)
for _, member in ipairs(old) do
  forget_answer(answers, ages, tenants, of_tenant, owners, member)
end
local over = redis.call('ZCARD', ages) - tonumber(ARGV[3])
for _ = 1, math.min(over, AT_ONCE + (#ARGV - 3) / 2) do
  local most = redis.call('ZREVRANGE', tenants, 0, 0)[1]
  local oldest = most and redis.call('ZRANGE', of_tenant .. most, 0, 0)[1]
  -- What no tenant is known to have comes from before there were such lists.
  oldest = oldest or redis.call('ZRANGE', ages, 0, 0)[1]
  forget_answer(answers, ages, tenants, of_tenant, owners, oldest)
end
return others
