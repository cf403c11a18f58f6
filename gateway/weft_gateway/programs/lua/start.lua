-- Create or keep a named program.
-- KEYS: row, activity, tenant's names, tenant's idle programs, totals
-- ARGV: member, program, now, limit of programs per tenant,
--       the ask (deadline or '', scope, class, explicit, turn)
local row, activity, names, idle = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local totals = KEYS[5]
local member, program, now = ARGV[1], ARGV[2], ARGV[3]

local created, over = begin(row, activity, names, idle, totals, member, program, now, ARGV[4])
pursue(row, ARGV, 5, false, now)
return pack({tostring(created), tostring(#over)}, over, redis.call('HGETALL', row))
