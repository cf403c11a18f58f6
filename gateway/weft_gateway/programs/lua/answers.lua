-- Store the metadata of answers. Expired answers are removed, a limited number per call. Over the
-- limit, the oldest answers of the tenant with most are removed. Returns the members that are not
-- stored, because another tenant owns their id. KEYS: answers, ages, order by tenant and age,
-- tenants by number of answers, owners. ARGV: now, lifetime in seconds, maximum answers, then
-- member, value...
local answers, ages, order, counts, now = KEYS[1], KEYS[2], KEYS[3], KEYS[4], tonumber(ARGV[1])
local owners = KEYS[5]
local AT_ONCE = 100
local others = {}

local function keep(member, packed)
  local place, tenant = place_of(member, now)
  local id = owned(member)
  if id and redis.call('HSETNX', owners, id, tenant) == 0
      and redis.call('HGET', owners, id) ~= tenant then
    others[#others + 1] = member
    return
  end
  displace(ages, order, counts, member)
  redis.call('HSET', answers, member, packed)
  redis.call('ZADD', ages, ARGV[1], member)
  redis.call('ZADD', order, 0, place)
  redis.call('ZINCRBY', counts, 1, tenant)
end

for i = 4, #ARGV, 2 do
  keep(ARGV[i], ARGV[i + 1])
end
local old = redis.call('ZRANGEBYSCORE', ages, '-inf', now - tonumber(ARGV[2]), 'LIMIT', 0, AT_ONCE)
for _, member in ipairs(old) do
  forget_answer(answers, ages, order, counts, owners, member)
end
local over = redis.call('ZCARD', ages) - tonumber(ARGV[3])
for _ = 1, math.min(over, AT_ONCE + (#ARGV - 3) / 2) do
  local most = redis.call('ZREVRANGE', counts, 0, 0)[1]
  local oldest = most and oldest_of(order, most)
  -- An answer without a counted tenant was stored by an earlier release.
  oldest = oldest or redis.call('ZRANGE', ages, 0, 0)[1]
  forget_answer(answers, ages, order, counts, owners, oldest)
end
return others
