-- Add or overwrite a handle. Returns 0, without a change, if its tenant is at the limit. If all
-- tenants together are at the limit, returns the tenant that must first lose a handle.
-- KEYS: handle, its program's handles, its tenant's handles, all handles, tenants by number
-- ARGV: now, expiry, lifetime in seconds, limit per tenant, limit of all, handle, tenant/handle,
--       tenant, name, text...
local row, of_program, of_tenant, all, tenants = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local now, ends, keep, tenant = ARGV[1], ARGV[2], ARGV[3], ARGV[8]
local AT_ONCE = 100

redis.call('ZREMRANGEBYSCORE', of_tenant, '-inf', now)
for _, member in ipairs(redis.call('ZRANGEBYSCORE', all, '-inf', now, 'LIMIT', 0, AT_ONCE)) do
  forget_handle(all, tenants, member)
end
if redis.call('EXISTS', row) == 0 then
  local own = redis.call('ZCARD', of_tenant)
  if own >= tonumber(ARGV[4]) then
    return 0
  end
  if redis.call('ZCARD', all) >= tonumber(ARGV[5]) then
    local most = redis.call('ZREVRANGE', tenants, 0, 0, 'WITHSCORES')
    return (most[1] and own < tonumber(most[2])) and most[1] or tenant
  end
end
for i = 9, #ARGV, 2 do
  redis.call('HSET', row, ARGV[i], ARGV[i + 1])
end
redis.call('EXPIRE', row, keep)
if redis.call('ZADD', all, ends, ARGV[7]) == 1 then
  redis.call('ZINCRBY', tenants, 1, tenant)
end
for _, index in ipairs({of_program, of_tenant}) do
  redis.call('ZADD', index, ends, ARGV[6])
  if redis.call('TTL', index) < tonumber(keep) then
    redis.call('EXPIRE', index, keep)
  end
end
return 1
