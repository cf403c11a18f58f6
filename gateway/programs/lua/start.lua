-- Create a program by name, or keep the one that is there.
-- KEYS: row, activity, tenant's names   ARGV: member, program, now
local row, activity, names = KEYS[1], KEYS[2], KEYS[3]
local member, program, now = ARGV[1], ARGV[2], ARGV[3]
local created = redis.call('EXISTS', row) == 0
if created then
  redis.call('HSET', row, 'arrival', now, 'last_arrival', now)
end
redis.call('HSET', row, 'ephemeral', '0')
redis.call('HDEL', row, 'ended')
redis.call('ZADD', names, 0, program)
redis.call('ZADD', activity, 'GT', now, member)
return {created and 1 or 0, redis.call('HGETALL', row)}
