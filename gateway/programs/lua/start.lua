-- Create a program by name, or keep the one that is there.
-- KEYS: row, activity, tenant's names, tenant's idle programs, totals, marks of replays
-- ARGV: member, program, now, event, replay, most programs of the tenant
local row, activity, names, idle = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local totals, marks = KEYS[5], KEYS[6]
local member, program, now = ARGV[1], ARGV[2], ARGV[3]

if replayed(marks, ARGV[4], ARGV[5] == '1', now) then
  return false
end
local created = redis.call('HSETNX', row, 'arrival', now)
redis.call('HINCRBY', totals, 'created', created)
redis.call('HSET', row, 'ephemeral', '0')
redis.call('HDEL', row, 'ended')
if redis.call('ZADD', names, 0, program) == 1 then
  make_room(row, activity, names, idle, totals, member, program, tonumber(ARGV[6]))
end
if open_calls(row) == 0 then
  redis.call('ZADD', idle, now, program)
end
touch(activity, member, now)
return pack({tostring(created)}, redis.call('HGETALL', row))
