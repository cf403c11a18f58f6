-- Remove a handle. Returns 1 if it existed.
-- KEYS: handle, its program's handles, its tenant's handles, all handles, tenants by number
-- ARGV: handle, tenant/handle
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
forget_handle(KEYS[4], KEYS[5], ARGV[2])
return redis.call('DEL', KEYS[1])
