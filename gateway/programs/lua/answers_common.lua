-- Comes before the scripts about stored answers. What begins with `of_tenant` and a tenant are the
-- ages of his answers; `tenants` says how many he has.
local function forget_answer(answers, ages, tenants, of_tenant, member)
  local tenant = string.match(member, '^[^/]*')
  redis.call('HDEL', answers, member)
  redis.call('ZREM', ages, member)
  if redis.call('ZREM', of_tenant .. tenant, member) == 1
      and tonumber(redis.call('ZINCRBY', tenants, -1, tenant)) <= 0 then
    redis.call('ZREM', tenants, tenant)
  end
end

