-- Prepended to the scripts about stored answers. An answer's member is TENANT/RESPONSE. In `order`,
-- all scores are 0, so a tenant's answers are adjacent, oldest first.
local function place_of(member, stored)
  local tenant, response = string.match(member, '^([^/]*)/(.*)$')
  return tenant .. '/' .. string.format('%020.6f', tonumber(stored)) .. '/' .. response, tenant
end

local function oldest_of(order, tenant)
  -- '0' is the character after '/'.
  local place = redis.call('ZRANGEBYLEX', order, '[' .. tenant .. '/', '(' .. tenant .. '0',
    'LIMIT', 0, 1)[1]
  return place and tenant .. '/' .. string.match(place, '^[^/]*/[^/]*/(.*)$')
end

-- Remove an answer from its tenant's count, if it is counted.
local function displace(ages, order, counts, member)
  local stored = redis.call('ZSCORE', ages, member)
  if not stored then
    return
  end
  local place, tenant = place_of(member, stored)
  if redis.call('ZREM', order, place) == 1
      and tonumber(redis.call('ZINCRBY', counts, -1, tenant)) <= 0 then
    redis.call('ZREM', counts, tenant)
  end
end

-- Return the id of an answer that one tenant owns. `owners` maps such ids to tenants.
local function owned(member)
  return string.match(member, '^[^/]*/(resp_.*)$')
end

local function forget_answer(answers, ages, order, counts, owners, member)
  displace(ages, order, counts, member)
  redis.call('HDEL', answers, member)
  redis.call('ZREM', ages, member)
  local id = owned(member)
  if id and redis.call('HGET', owners, id) == string.match(member, '^[^/]*') then
    redis.call('HDEL', owners, id)
  end
end

