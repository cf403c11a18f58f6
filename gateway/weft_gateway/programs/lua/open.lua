-- Open a call in one atomic change. All checks come before the first write.
-- KEYS: row, in-flight counts, activity, tenant's names, tenant's idle programs, leases, totals,
--       open calls, homes, programs by home, work, budgets, reserved
-- ARGV: member, program, call, thread, candidate, sticky, now, ephemeral, lease, parent,
--       limit of programs per tenant, the ask (deadline or '', scope, class, explicit, turn),
--       1 if budgets let it pass, budget of a program without one, the call's claim,
--       number of charges, number of eligible replicas, eligible..., then each charge's account,
--       begin of the period and budget, then replicas and costs in turn
local row, in_flight, activity, names, idle = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local leases, totals, calls = KEYS[6], KEYS[7], KEYS[8]
local homes, home_counts, work = KEYS[9], KEYS[10], KEYS[11]
local budgets, reserved = KEYS[12], KEYS[13]
local member, program, call, thread, candidate = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local sticky, now, ephemeral, lease = ARGV[6] == '1', ARGV[7], ARGV[8] == '1', ARGV[9]

if redis.call('HEXISTS', row, 't:' .. call) == 1 then
  return redis.error_reply('WEFT the call is open already')
end

local budget, accounts = redis.call('HGET', row, 'budget'), {}
local room = ARGV[17] == '1' or not (budget or ARGV[18] ~= '')
  or not program_full(row, budget or ARGV[18], now)
local first_charge = 22 + tonumber(ARGV[21])
local costs_from = first_charge + 3 * tonumber(ARGV[20])
for i = first_charge, costs_from - 1, 3 do
  local found = account(budgets, reserved, ARGV[i], tonumber(ARGV[i + 1]), now)
  accounts[#accounts + 1] = found
  if ARGV[17] ~= '1' and full(ARGV[i + 2], amounts(found[4], found[5], found[6], found[3], found[7],
      math.max(0, tonumber(now) - found[2]), found[8]), claims(unpack(found, 9))) then
    room = false
  end
end
if not room then
  for i, found in ipairs(accounts) do
    accounts[i] = packed_account(found)
  end
  return pack({'', '', '', '0', '0', '0', tostring(#accounts)}, accounts, redis.call('HGETALL', row))
end

-- Algorithm 2, lines 5 to 10: an eligible home wins over the candidate.
local replica, ends = candidate, 21 + tonumber(ARGV[21])
if sticky then
  local home = redis.call('HGET', row, 'home')
  for i = 22, ends do
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
for i = costs_from, #ARGV, 2 do
  if ARGV[i] == replica then
    cost = ARGV[i + 1]
  end
end
local steps_and_cost = steps
if ARGV[19] ~= '' then
  steps_and_cost = steps .. ' ' .. cost .. ' ' .. ARGV[19]
elseif cost ~= '0' then
  steps_and_cost = steps .. ' ' .. cost
end
if ARGV[18] ~= '' then
  redis.call('HSETNX', row, 'budget', ARGV[18])
end
if #accounts > 0 then
  local held = {ARGV[19] == '' and '0 0 0 0' or ARGV[19]}
  for i, found in ipairs(accounts) do
    claim_of(found, words_of(held[1]), 1)
    accounts[i] = packed_account(found)
    held[i + 1] = ARGV[first_charge + 3 * (i - 1)]
    redis.call('HSET', budgets, held[i + 1], accounts[i])
  end
  redis.call('HSET', reserved, lease, table.concat(held, '\n'))
end
redis.call('HSET', row, 't:' .. call,
  table.concat({now, path .. ' ' .. steps_and_cost, replica, #ARGV[10], ARGV[10] .. thread}, '\n'),
  'last_replica', replica)
add_call(in_flight, calls, leases, lease, placed(replica, cost), work)
touch(activity, member, now)
local counts = open_by_replica(in_flight, calls, work)
local costs = redis.call('HGETALL', work)
local head = {replica, tostring(created), stamp(), tostring(#counts), tostring(#costs), tostring(#over),
  tostring(#accounts)}
return pack(head, counts, costs, over, accounts, redis.call('HGETALL', row))
