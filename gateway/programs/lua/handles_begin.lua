-- Begin a handle, or write it again. 0, and nothing has changed, where there are too many.
-- KEYS: handle, its program's handles, its tenant's, all
-- ARGV: now, its end, seconds to keep it, most of the tenant, most of all, handle, tenant/handle,
--       name, text...
local row, of_program, of_tenant, all = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local now, ends, keep = ARGV[1], ARGV[2], ARGV[3]

redis.call('ZREMRANGEBYSCORE', of_tenant, '-inf', now)
redis.call('ZREMRANGEBYSCORE', all, '-inf', now)
if redis.call('EXISTS', row) == 0 and (redis.call('ZCARD', of_tenant) >= tonumber(ARGV[4])
    or redis.call('ZCARD', all) >= tonumber(ARGV[5])) then
  return 0
end
for i = 8, #ARGV, 2 do
  redis.call('HSET', row, ARGV[i], ARGV[i + 1])
end
redis.call('EXPIRE', row, keep)
redis.call('ZADD', all, ends, ARGV[7])
for _, index in ipairs({of_program, of_tenant}) do
  redis.call('ZADD', index, ends, ARGV[6])
  if redis.call('TTL', index) < tonumber(keep) then
    redis.call('EXPIRE', index, keep)
  end
end
return 1
