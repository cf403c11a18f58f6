-- Give back what a gateway knows of a row that the server has lost. Several gateways may give what
-- they know, in any order, also after new calls have been counted: of each sum the row keeps the
-- largest amount that was given back, and everything that was counted since. Calls that were open
-- are left to the gateways that have them.
-- KEYS: row, activity, tenant's names, tenant's idle programs, totals
-- ARGV: member, program, activity, arrival, home, last arrival, last completion, then of each sum
--       its name and its amount
local row, activity, names, idle, totals = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local member, program, arrival = ARGV[1], ARGV[2], ARGV[4]

if arrive(row, activity, totals, member, arrival) == 0
    and tonumber(arrival) < tonumber(redis.call('HGET', row, 'arrival')) then
  redis.call('HSET', row, 'arrival', arrival)
end
redis.call('HSET', row, 'ephemeral', '0')
redis.call('ZADD', names, 0, program)
touch(activity, member, ARGV[3])
if ARGV[5] ~= '' then
  redis.call('HSETNX', row, 'home', ARGV[5])
end
for i, name in ipairs({'last_arrival', 'last_completion'}) do
  local last = redis.call('HGET', row, name)
  if not last or tonumber(ARGV[5 + i]) > tonumber(last) then
    redis.call('HSET', row, name, ARGV[5 + i])
  end
end
for i = 8, #ARGV, 2 do
  local name, amount = ARGV[i], tonumber(ARGV[i + 1])
  local given = tonumber(redis.call('HGET', row, 'r:' .. name) or '0')
  if amount > given then
    redis.call('HINCRBYFLOAT', row, name, string.format('%.17g', amount - given))
    redis.call('HSET', row, 'r:' .. name, ARGV[i + 1])
  end
end
if open_calls(row) == 0 then
  redis.call('ZADD', idle, ARGV[3], program)
end
return 1
