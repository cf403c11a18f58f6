-- Create a program by name, or keep the one that is there.
-- KEYS: row, activity, tenant's names, tenant's idle programs, totals, marks of replays
-- ARGV: member, program, now, event, replay, most programs of the tenant
local row, activity, names, idle = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local totals, marks = KEYS[5], KEYS[6]
local member, program, now = ARGV[1], ARGV[2], ARGV[3]

if replayed(marks, ARGV[4], ARGV[5] == '1', now) then
  return false
end
local created, over = begin(row, activity, names, idle, totals, member, program, now, ARGV[6])
return pack({tostring(created), tostring(#over)}, over, redis.call('HGETALL', row))
