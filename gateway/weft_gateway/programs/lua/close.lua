-- Close a call, once. Returns the open calls and the row afterwards, even if the row is removed with
-- this call; no row if the call is not open in it. With `lapsed`, closes the call only if its lease
-- is older, in seconds; returns false otherwise.
-- KEYS: row, in-flight counts, activity, tenant's names, tenant's idle programs, leases, totals,
--       open calls, homes, programs by home, work, budgets, reserved, the day's usage
-- ARGV: member, program, call, now, errors or 'refused', service, waiting, prompt, cached, output,
--       preemptions, lease, lapsed or '', 1 for a call of the program's path, nanodollars, payer or '';
--       with a payer: the limits of the day, what the call used
local row, in_flight, activity, names, idle = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local leases, totals, calls = KEYS[6], KEYS[7], KEYS[8]
local homes, home_counts, work = KEYS[9], KEYS[10], KEYS[11]
local member, program, call, now, service = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[6]
local lease, lapsed = ARGV[12], ARGV[13]

-- Return a call's reservation to its accounts, and add what it used (`rules.settled`).
local function settle(budgets, reserved, lease, closing)
  local held = redis.call('HGET', reserved, lease)
  if not held then
    return
  end
  local first = string.match(held, '^[^\n]*')
  for name in string.gmatch(string.sub(held, #first + 1), '[^\n]+') do
    local found = account(budgets, reserved, name, 0, closing[4])
    claim_of(found, words_of(first), -1)
    if closing[5] ~= 'refused' then
      local used = {1, closing[8], closing[9], closing[10], closing[6], closing[15]}
      for i, amount in ipairs(used) do
        found[2 + i] = found[2 + i] + tonumber(amount)
      end
    end
    redis.call('HSET', budgets, name, packed_account(found))
  end
  redis.call('HDEL', reserved, lease)
end

if lapsed ~= '' then
  local sign = redis.call('ZSCORE', leases, lease)
  if not sign or tonumber(sign) >= server_time() - tonumber(lapsed) then
    return false
  end
end
remove_call(in_flight, calls, leases, lease, work)
settle(KEYS[12], KEYS[13], lease, ARGV)
local packed = redis.call('HGET', row, 't:' .. call)
if not packed then
  if redis.call('EXISTS', row) == 0 then
    -- The row was deleted by hand: remove it from the indexes.
    forget(row, activity, names, idle, totals, member, program, homes, home_counts)
  end
  local counts, costs = open_by_replica(in_flight, calls, work), redis.call('HGETALL', work)
  return pack({stamp(), tostring(#counts), tostring(#costs)}, counts, costs)
end
-- arrival, the program's critical path and its calls at opening, and the fields that `renew` reads
local path_then, steps_then = string.match(packed, '^[^\n]*\n([^ \n]*) (%d+)[ %d]*\n')
redis.call('HDEL', row, 't:' .. call)
if ARGV[5] == 'refused' then
  -- The call was not sent: the row is as before it (`rules._taken_back`).
  if redis.call('HINCRBY', row, 'calls', -1) == 0 then
    restart_goal(row)
  end
else
  redis.call('HINCRBYFLOAT', row, 'service', service)
  redis.call('HINCRBYFLOAT', row, 'waiting', ARGV[7])
  -- Algorithm 1, line 4: the longest observed critical path.
  local path = tonumber(path_then) + tonumber(service)
  local longest = tonumber(redis.call('HGET', row, 'critical_path') or '0')
  if path > longest then
    redis.call('HSET', row, 'critical_path', string.format('%.17g', path))
  end
  local steps = tonumber(steps_then) + tonumber(ARGV[14])
  if steps > tonumber(redis.call('HGET', row, 'path_calls') or '0') then
    redis.call('HSET', row, 'path_calls', string.format('%d', steps))
  end
  redis.call('HINCRBY', row, 'calls_closed', 1)
  redis.call('HINCRBY', row, 'errors', ARGV[5])
  redis.call('HINCRBY', row, 'prompt', ARGV[8])
  redis.call('HINCRBY', row, 'cached', ARGV[9])
  redis.call('HINCRBY', row, 'output', ARGV[10])
  redis.call('HINCRBY', row, 'preemptions', ARGV[11])
  if ARGV[15] ~= '0' then
    redis.call('HINCRBY', row, 'nanodollars', ARGV[15])
  end
  if ARGV[16] ~= '' then
    charge(KEYS[14], ARGV[16], ARGV[17], ARGV[18])
  end
  local last = redis.call('HGET', row, 'last_completion')
  if not last or tonumber(now) > tonumber(last) then
    redis.call('HSET', row, 'last_completion', now)
  end
end

local counts, costs = open_by_replica(in_flight, calls, work), redis.call('HGETALL', work)
local head = {stamp(), tostring(#counts), tostring(#costs)}
local reply = pack(head, counts, costs, redis.call('HGETALL', row))
local open = redis.call('HGET', row, 'calls') - (redis.call('HGET', row, 'calls_closed') or 0)
if open == 0 and (redis.call('HGET', row, 'ephemeral') == '1' or redis.call('HEXISTS', row, 'ended') == 1) then
  forget(row, activity, names, idle, totals, member, program, homes, home_counts)
else
  touch(activity, member, now)
  if open == 0 then
    redis.call('ZADD', idle, now, program)
  end
end
return reply
