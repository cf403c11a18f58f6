-- Comes before the scripts about stored answers. What begins with `of_tenant` and a tenant are the
-- ages of his answers; `tenants` says how many he has; `owners` has the tenant of each answer's id.
local function owned(member)
  return string.match(member, '^[^/]*/(resp_.*)$')
end

local function forget_answer(answers, ages, tenants, of_tenant, owners, member)
  local tenant = string.match(member, '^[^/]*')
  redis.call('HDEL', answers, member)
  redis.call('ZREM', ages, member)
  if redis.call('ZREM', of_tenant .. tenant, member) == 1
      and tonumber(redis.call('ZINCRBY', tenants, -1, tenant)) <= 0 then
    redis.call('ZREM', tenants, tenant)
  end
  local id = owned(member)
  if id and redis.call('HGET', owners, id) == tenant then
    redis.call('HDEL', owners, id)
  end
end

