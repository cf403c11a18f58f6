-- Prepended to every script.

-- Parsing a reply of many strings costs the client more than the call costs the server. The reply
-- is therefore one string: the lengths, a newline, then all parts.
local function pack(...)
  local parts, lengths = {}, {}
  for _, list in ipairs({...}) do
    for _, part in ipairs(list) do
      parts[#parts + 1] = part
      lengths[#lengths + 1] = #part
    end
  end
  return table.concat(lengths, ' ') .. '\n' .. table.concat(parts)
end

-- Open calls of a program.
local function open_calls(row)
  local calls = tonumber(redis.call('HGET', row, 'calls') or '0')
  return calls - tonumber(redis.call('HGET', row, 'calls_closed') or '0')
end

-- The server's time, Unix seconds. Leases use it, because gateways' clocks differ.
local function server_time()
  local parts = redis.call('TIME')
  return parts[1] + parts[2] / 1e6
end

-- The same as text, to microseconds.
local function stamp()
  return string.format('%.6f', server_time())
end

-- A value of `calls`: the replica, and the call's predicted cost, in microseconds, if it has one.
local function placed(replica, cost)
  return cost == '0' and replica or replica .. '\n' .. cost
end

-- The reverse of `placed`.
local function replica_and_cost(value)
  local replica, cost = string.match(value, '^([^\n]*)\n(%d+)$')
  return replica or value, cost or '0'
end

-- Count the costs of open calls by replica again.
local function count_work(calls, work)
  redis.call('DEL', work)
  for _, value in ipairs(redis.call('HVALS', calls)) do
    local replica, cost = replica_and_cost(value)
    if cost ~= '0' then
      redis.call('HINCRBY', work, replica, cost)
    end
  end
end

-- Open calls by replica, flat, in the form of HGETALL. `calls` is authoritative: it maps each open
-- call's lease to its replica. `in_flight` and `work` hold the sums, because an opening cannot count
-- thousands of calls. If the totals differ, one of the keys was changed by hand, and all calls are
-- counted again.
local function open_by_replica(in_flight, calls, work)
  local sums, total = redis.call('HGETALL', in_flight), 0
  for i = 2, #sums, 2 do
    total = total + tonumber(sums[i])
  end
  if total == redis.call('HLEN', calls) then
    return sums
  end
  redis.call('DEL', in_flight)
  for _, value in ipairs(redis.call('HVALS', calls)) do
    redis.call('HINCRBY', in_flight, replica_and_cost(value), 1)
  end
  if work then
    count_work(calls, work)
  end
  return redis.call('HGETALL', in_flight)
end

-- Subtract one call from a replica.
local function leave_replica(in_flight, replica)
  if redis.call('HINCRBY', in_flight, replica, -1) <= 0 then
    redis.call('HDEL', in_flight, replica)
  end
end

-- Remove a closed call. Its row may be gone, so this uses the lease only.
local function remove_call(in_flight, calls, leases, lease, work)
  redis.call('ZREM', leases, lease)
  local value = redis.call('HGET', calls, lease)
  if value then
    redis.call('HDEL', calls, lease)
    local replica, cost = replica_and_cost(value)
    leave_replica(in_flight, replica)
    if cost ~= '0' and redis.call('HINCRBY', work, replica, '-' .. cost) <= 0 then
      redis.call('HDEL', work, replica)
    end
  end
end

-- Register an open call at a replica, or move it there. value: see `placed`.
local function add_call(in_flight, calls, leases, lease, value, work)
  local was = redis.call('HGET', calls, lease)
  if was ~= value then
    if was then
      remove_call(in_flight, calls, leases, lease, work)
    end
    local replica, cost = replica_and_cost(value)
    redis.call('HSET', calls, lease, value)
    redis.call('HINCRBY', in_flight, replica, 1)
    if cost ~= '0' then
      redis.call('HINCRBY', work, replica, cost)
    end
  end
  redis.call('ZADD', leases, stamp(), lease)
end

-- Set a program's home, or remove it (''). `homes` maps programs to their homes, and `home_counts`
-- holds the sums, like `calls` and `in_flight`.
local function set_home(homes, home_counts, member, replica)
  local was = redis.call('HGET', homes, member)
  if was == replica or (replica == '' and not was) then
    return
  end
  if was then
    leave_replica(home_counts, was)
  end
  if replica == '' then
    redis.call('HDEL', homes, member)
  else
    redis.call('HSET', homes, member, replica)
    redis.call('HINCRBY', home_counts, replica, 1)
  end
end

-- Set a row's arrival if it has none. Returns 1 if the program is new, else 0.
local function arrive(row, activity, totals, member, arrival, homes, home_counts)
  if redis.call('HSETNX', row, 'arrival', arrival) == 0 then
    return 0
  end
  redis.call('HINCRBY', totals, 'created', 1)
  if redis.call('ZSCORE', activity, member) then
    -- The row of an earlier program with this name was deleted by hand: count it as ended.
    redis.call('HINCRBY', totals, 'ended', 1)
    set_home(homes, home_counts, member, '')
  end
  return 1
end

-- Remove a program that is in the activity index.
local function forget(row, activity, names, idle, totals, member, program, homes, home_counts)
  redis.call('DEL', row)
  set_home(homes, home_counts, member, '')
  redis.call('ZREM', names, program)
  redis.call('ZREM', idle, program)
  if redis.call('ZREM', activity, member) == 1 then
    redis.call('HINCRBY', totals, 'ended', 1)
  end
end

-- The tenant's programs above its limit, longest idle first. At most ENDED_AT_ONCE (see `rules`),
-- because many may exceed a lowered limit. The caller ends them: a script accesses only rows among
-- its keys.
local ENDED_AT_ONCE = 16
local function too_many(names, idle, limit)
  local over = math.min(redis.call('ZCARD', names) - tonumber(limit), ENDED_AT_ONCE)
  return over > 0 and redis.call('ZRANGE', idle, 0, over - 1) or {}
end

-- Set a row's goal, as `rules.asked` and, if a call opens, `rules.pursued` do. Fields: deadline and
-- begin of its unit, path calls at that time, scope, class. An empty deadline asks for nothing.
local function pursue(row, ask, at, opens, now)
  local known = redis.call('HGET', row, 'goal')
  if not known and ask[at] == '' then
    return
  end
  local deadline, begun, begun_calls, scope, slo = ask[at], '0.0', '0', ask[at + 1], ask[at + 2]
  if known then
    local was = {string.match(known, '^([^\n]*)\n([^\n]*)\n([^\n]*)\n([^\n]*)\n(.*)$')}
    begun, begun_calls = was[2], was[3]
    if deadline == '' or ask[at + 3] ~= '1' then
      deadline, scope, slo = was[1], was[4], was[5]
    end
  end
  if opens then
    local turns, begins = scope == 'turn', tonumber(begun) == 0
    if begins and not turns and tonumber(redis.call('HGET', row, 'calls') or '0') > 0 then
      begun, begun_calls = redis.call('HGET', row, 'arrival'), '0'
    elseif begins or (turns and ask[at + 4] == '1') then
      begun, begun_calls = now, redis.call('HGET', row, 'path_calls') or '0'
    end
  end
  redis.call('HSET', row, 'goal',
    table.concat({deadline, begun, begun_calls, scope, slo}, '\n'))
end

-- Let the unit of a row's goal begin with the next call.
local function restart_goal(row)
  local known = redis.call('HGET', row, 'goal')
  if known then
    redis.call('HSET', row, 'goal',
      (string.gsub(known, '^([^\n]*)\n[^\n]*\n[^\n]*\n', '%1\n0.0\n0\n', 1)))
  end
end

-- Remove all attributes of a program once the last one has expired. `told` is that time.
local function drop_told(row, now)
  local until_s = redis.call('HGET', row, 'told')
  if not until_s or tonumber(until_s) > tonumber(now) then
    return
  end
  for _, field in ipairs(redis.call('HKEYS', row)) do
    if field == 'told' or string.sub(field, 1, 2) == 'h:' then
      redis.call('HDEL', row, field)
    end
  end
end

-- Budgets (`model.spending`). A budget is eight limits, '-' for none, and what happens at a limit.
-- Amounts are in the order of the limits.
local function words_of(text)
  local found = {}
  for word in string.gmatch(text or '', '%S+') do
    found[#found + 1] = word
  end
  return found
end

local function amounts(prompt, cached, output, calls, engine, wall, nanodollars)
  return {prompt + output, prompt - cached, cached, output, calls, engine, wall, nanodollars}
end

-- What reservations take: a prompt may be cached or not.
local function claims(calls, prompt, output, engine_us, nanodollars)
  return {prompt + output, prompt, prompt, output, calls, engine_us / 1e6, 0, nanodollars}
end

-- Whether no other call may begin, as `model.spending.full`.
local function full(budget, used, reserved)
  local limits = words_of(budget)
  if limits[9] == 'warn' then
    return false
  end
  for i = 1, 8 do
    local most = tonumber(limits[i] or '-')
    if most and used[i] + reserved[i] >= most then
      return true
    end
  end
  return false
end

-- Whether a program's budget has no room.
local function program_full(row, budget, now)
  local fields = redis.call('HGETALL', row)
  local known, sums = {}, {0, 0, 0, 0, 0}
  for i = 1, #fields, 2 do
    known[fields[i]] = fields[i + 1]
    if string.sub(fields[i], 1, 2) == 't:' then
      local claim = words_of(string.match(fields[i + 1], '^[^\n]*\n[^ \n]* %d+ %d+ ([%d ]+)\n'))
      sums[1] = sums[1] + 1
      for j = 1, 4 do
        sums[j + 1] = sums[j + 1] + tonumber(claim[j] or '0')
      end
    end
  end
  local function of(name)
    return tonumber(known[name] or '0')
  end
  local wall = known['arrival'] and tonumber(now) - of('arrival') or 0
  local used = amounts(of('prompt'), of('cached'), of('output'), of('calls_closed'), of('service'),
    math.max(0, wall), of('nanodollars'))
  return full(budget, used, claims(unpack(sums)))
end

-- An account of `budgets` as numbers: begin of its period, its first call, calls, prompt, cached and
-- output tokens, service, nanodollars; then the calls in flight, and their prompt and output tokens,
-- microseconds and nanodollars. A later period starts anew.
local function account(budgets, reserved, name, since, now)
  local found = words_of(redis.call('HGET', budgets, name))
  for i = 1, 13 do
    found[i] = tonumber(found[i] or '0')
  end
  if found[2] == 0 or since > found[1] then
    found[1], found[2] = since, tonumber(now)
    for i = 3, 8 do
      found[i] = 0
    end
  end
  if redis.call('EXISTS', reserved) == 0 then
    -- No call is in flight, or the key was deleted by hand.
    for i = 9, 13 do
      found[i] = 0
    end
  end
  return found
end

-- Change what an account reserves by a call's claim: prompt, output, microseconds, nanodollars.
local function claim_of(found, claim, sign)
  found[9] = found[9] + sign
  for i = 1, 4 do
    found[9 + i] = math.max(0, found[9 + i] + sign * claim[i])
  end
end

local function packed_account(found)
  local words = {}
  for i = 1, 13 do
    words[i] = string.format('%.17g', found[i])
  end
  return table.concat(words, ' ')
end

-- Add to a row of a day's usage (`ledger.Ledger.close`). limits: its rows, and the seconds for which
-- it is kept. Integers up to 2^53 stay exact.
local function charge(day, payer, limits, amounts)
  local most, keep_s = unpack(words_of(limits))
  local held = redis.call('HGET', day, payer)
  local size = held and 1 or redis.call('HLEN', day)
  if size >= tonumber(most) and not held then
    local tenant, model = string.match(payer, '^([^\n]*)\n[^\n]*\n([^\n]*)\n')
    payer = tenant .. '\n\n' .. model .. '\n'
    held = redis.call('HGET', day, payer)
  end
  local sums = words_of(held)
  for i, amount in ipairs(words_of(amounts)) do
    sums[i] = string.format('%.0f', tonumber(sums[i] or '0') + tonumber(amount))
  end
  redis.call('HSET', day, payer, table.concat(sums, ' '))
  if size == 0 then
    redis.call('EXPIRE', day, keep_s)
  end
end

-- Set a program's last activity, which never decreases.
local function touch(activity, member, now)
  local last = redis.call('ZSCORE', activity, member)
  if not last or tonumber(now) > tonumber(last) then
    redis.call('ZADD', activity, now, member)
  end
end

-- Create or keep a named program. Returns 1 if it is new, else 0, and the tenant's programs above
-- its limit.
local function begin(row, activity, names, idle, totals, member, program, now, limit, homes, counts)
  local created, over = arrive(row, activity, totals, member, now, homes, counts), {}
  redis.call('HSET', row, 'ephemeral', '0')
  redis.call('HDEL', row, 'ended')
  if redis.call('ZADD', names, 0, program) == 1 then
    over = too_many(names, idle, limit)
  end
  if open_calls(row) == 0 then
    redis.call('ZADD', idle, now, program)
  end
  touch(activity, member, now)
  return created, over
end
