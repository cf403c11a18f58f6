-- Create or keep a named program.
-- KEYS: row, activity, tenant's names, tenant's idle programs, totals, homes,
--       programs by home
-- ARGV: member, program, now, limit of programs per tenant,
--       the ask (deadline or '', scope, class, explicit, turn)
local row, activity, names, idle = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local totals, homes, home_counts = KEYS[5], KEYS[6], KEYS[7]
local member, program, now = ARGV[1], ARGV[2], ARGV[3]

local created, over = begin(row, activity, names, idle, totals, member, program, now, ARGV[4],
  homes, home_counts)
pursue(row, ARGV, 5, false, now)
return pack({tostring(created), tostring(#over)}, over, redis.call('HGETALL', row))
