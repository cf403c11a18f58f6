-- Prepended to the scripts about stored answers. An answer's member is TENANT/RESPONSE. In `order`,
-- all scores are 0, so a tenant's answers are adjacent, least recently used first. KEYS: answers,
-- ages, order by tenant and age, tenants by their bytes, bytes of all, owners.
local answers, ages, order = KEYS[1], KEYS[2], KEYS[3]
local sizes, bytes, owners = KEYS[4], KEYS[5], KEYS[6]
-- Memory of an answer beside its value, bytes.
local OVERHEAD = 512

local function place_of(member, used)
  local tenant, response = string.match(member, '^([^/]*)/(.*)$')
  return tenant .. '/' .. string.format('%020.6f', tonumber(used)) .. '/' .. response, tenant
end

local function oldest_of(tenant)
  -- '0' is the character after '/'.
  local place = redis.call('ZRANGEBYLEX', order, '[' .. tenant .. '/', '(' .. tenant .. '0',
    'LIMIT', 0, 1)[1]
  return place and tenant .. '/' .. string.match(place, '^[^/]*/[^/]*/(.*)$')
end

-- Count a stored answer for its tenant (sign 1), or no longer (-1).
local function count(member, tenant, sign)
  local size = sign * (redis.call('HSTRLEN', answers, member) + OVERHEAD)
  redis.call('INCRBY', bytes, size)
  if tonumber(redis.call('ZINCRBY', sizes, size, tenant)) <= 0 then
    redis.call('ZREM', sizes, tenant)
  end
end

-- Make an existing answer its tenant's latest. Returns false if there is none.
local function renew(member, now)
  local used = redis.call('ZSCORE', ages, member)
  if not used then
    return false
  end
  redis.call('ZREM', order, (place_of(member, used)))
  redis.call('ZADD', order, 0, (place_of(member, now)))
  redis.call('ZADD', ages, now, member)
  return true
end

-- Return the id of an answer that one tenant owns. `owners` maps such ids to tenants.
local function owned(member)
  return string.match(member, '^[^/]*/(resp_.*)$')
end

local function forget_answer(member)
  local used = redis.call('ZSCORE', ages, member)
  if not used then
    return
  end
  local place, tenant = place_of(member, used)
  redis.call('ZREM', order, place)
  redis.call('ZREM', ages, member)
  count(member, tenant, -1)
  redis.call('HDEL', answers, member)
  local id = owned(member)
  if id and redis.call('HGET', owners, id) == tenant then
    redis.call('HDEL', owners, id)
  end
end
