-- Create a program by name, or keep the one that is there.
-- KEYS: row, activity, tenant's names, totals, marks of replays
-- ARGV: member, program, now, event, replay
local row, activity, names, totals, marks = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local member, program, now = ARGV[1], ARGV[2], ARGV[3]

if replayed(marks, ARGV[4], ARGV[5] == '1', now) then
  return false
end
local created = redis.call('HSETNX', row, 'arrival', now)
redis.call('HINCRBY', totals, 'created', created)
redis.call('HSET', row, 'ephemeral', '0')
redis.call('HDEL', row, 'ended')
redis.call('ZADD', names, 0, program)
touch(activity, member, now)
return pack({tostring(created)}, redis.call('HGETALL', row))
