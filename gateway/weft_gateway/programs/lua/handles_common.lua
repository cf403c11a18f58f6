-- Prepended to the scripts that add and drop handles. `tenants` counts each tenant's handles in
-- `all`.
local function forget_handle(all, tenants, member)
  local tenant = string.match(member, '^[^/]*')
  if redis.call('ZREM', all, member) == 1
      and tonumber(redis.call('ZINCRBY', tenants, -1, tenant)) <= 0 then
    redis.call('ZREM', tenants, tenant)
  end
end

