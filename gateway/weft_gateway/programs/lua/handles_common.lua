-- Comes before the scripts that begin and drop handles. `tenants` says how many of `all` each tenant
-- has.
local function forget_handle(all, tenants, member)
  local tenant = string.match(member, '^[^/]*')
  if redis.call('ZREM', all, member) == 1
      and tonumber(redis.call('ZINCRBY', tenants, -1, tenant)) <= 0 then
    redis.call('ZREM', tenants, tenant)
  end
end

