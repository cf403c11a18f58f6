-- Open a call in one atomic change. All checks come before the first write.
-- KEYS: row, in-flight counts, activity, tenant's names, tenant's idle programs, leases, totals,
--       open calls, homes, programs by home, work
-- ARGV: member, program, call, thread, candidate, sticky, now, ephemeral, lease, parent,
--       limit of programs per tenant, the ask (deadline or '', scope, class, explicit, turn),
--       number of eligible replicas, eligible..., then replicas and costs in turn
local row, in_flight, activity, names, idle = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local leases, totals, calls = KEYS[6], KEYS[7], KEYS[8]
local homes, home_counts, work = KEYS[9], KEYS[10], KEYS[11]
local member, program, call, thread, candidate = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local sticky, now, ephemeral, lease = ARGV[6] == '1', ARGV[7], ARGV[8] == '1', ARGV[9]

if redis.call('HEXISTS', row, 't:' .. call) == 1 then
  return redis.error_reply('WEFT the call is open already')
end

-- Algorithm 2, lines 5 to 10: an eligible home wins over the candidate.
local replica, ends = candidate, 17 + tonumber(ARGV[17])
if sticky then
  local home = redis.call('HGET', row, 'home')
  for i = 18, ends do
    if ARGV[i] == home then
      replica = home
      break
    end
  end
  redis.call('HSET', row, 'home', replica)
end

local created, over = arrive(row, activity, totals, member, now, homes, home_counts), {}
if sticky then
  set_home(homes, home_counts, member, replica)
end
if ephemeral then
  redis.call('HSETNX', row, 'ephemeral', '1')
elseif redis.call('HGET', row, 'ephemeral') ~= '0' then
  redis.call('HSET', row, 'ephemeral', '0')
  redis.call('ZADD', names, 0, program)
  over = too_many(names, idle, ARGV[11])
end
redis.call('ZREM', idle, program)
local path = redis.call('HGET', row, 'critical_path') or '0'
local steps = redis.call('HGET', row, 'path_calls') or '0'
local last = redis.call('HGET', row, 'last_arrival')
if not last or tonumber(now) > tonumber(last) then
  redis.call('HSET', row, 'last_arrival', now)
end
redis.call('HDEL', row, 'ended')
drop_told(row, now)
pursue(row, ARGV, 12, true, now)
redis.call('HINCRBY', row, 'calls', 1)
local cost = '0'
for i = ends + 1, #ARGV, 2 do
  if ARGV[i] == replica then
    cost = ARGV[i + 1]
  end
end
local steps_and_cost = steps .. (cost == '0' and '' or ' ' .. cost)
redis.call('HSET', row, 't:' .. call,
  table.concat({now, path .. ' ' .. steps_and_cost, replica, #ARGV[10], ARGV[10] .. thread}, '\n'),
  'last_replica', replica)
add_call(in_flight, calls, leases, lease, placed(replica, cost), work)
touch(activity, member, now)
local counts = open_by_replica(in_flight, calls, work)
local costs = redis.call('HGETALL', work)
local head = {replica, tostring(created), tostring(#counts), tostring(#costs), tostring(#over)}
return pack(head, counts, costs, over, redis.call('HGETALL', row))
