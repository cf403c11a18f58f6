-- Create a program by name, or keep the one that is there.
-- KEYS: row, activity, tenant's names   ARGV: member, program, now
local row, activity, names = KEYS[1], KEYS[2], KEYS[3]
local member, program, now = ARGV[1], ARGV[2], ARGV[3]
local created = redis.call('HSETNX', row, 'arrival', now)
redis.call('HSET', row, 'ephemeral', '0')
redis.call('HDEL', row, 'ended')
redis.call('ZADD', names, 0, program)
local active = redis.call('ZSCORE', activity, member)
if not active or tonumber(now) > tonumber(active) then
  redis.call('ZADD', activity, now, member)
end
return pack({tostring(created)}, redis.call('HGETALL', row))
