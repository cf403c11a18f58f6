-- Comes before every script.

-- A reply of many strings costs the client more to parse than the whole call costs the server, so
-- it is sent as one: their lengths, a newline, then all of them.
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

-- Calls of a program that are open.
local function open_calls(row)
  local calls = tonumber(redis.call('HGET', row, 'calls') or '0')
  return calls - tonumber(redis.call('HGET', row, 'calls_closed') or '0')
end

-- The server's time, Unix seconds. Leases use it, since gateways' clocks differ.
local function server_time()
  local parts = redis.call('TIME')
  return parts[1] + parts[2] / 1e6
end

-- Open calls by replica, flat, as HGETALL has them. `calls` is the truth: each open call's lease and
-- its replica. `in_flight` holds sums of it, because an opening cannot count thousands of calls. If
-- the totals differ, somebody has deleted or changed one of the two keys, and all are counted again.
local function open_by_replica(in_flight, calls)
  local sums, total = redis.call('HGETALL', in_flight), 0
  for i = 2, #sums, 2 do
    total = total + tonumber(sums[i])
  end
  if total == redis.call('HLEN', calls) then
    return sums
  end
  redis.call('DEL', in_flight)
  for _, replica in ipairs(redis.call('HVALS', calls)) do
    redis.call('HINCRBY', in_flight, replica, 1)
  end
  return redis.call('HGETALL', in_flight)
end

-- One call less at a replica.
local function leave_replica(in_flight, replica)
  if redis.call('HINCRBY', in_flight, replica, -1) <= 0 then
    redis.call('HDEL', in_flight, replica)
  end
end

-- A call is open at a replica, from now on or already.
local function add_call(in_flight, calls, leases, lease, replica)
  if redis.call('HSETNX', calls, lease, replica) == 1 then
    redis.call('HINCRBY', in_flight, replica, 1)
  else
    local was = redis.call('HGET', calls, lease)
    if was ~= replica then
      leave_replica(in_flight, was)
      redis.call('HSET', calls, lease, replica)
      redis.call('HINCRBY', in_flight, replica, 1)
    end
  end
  redis.call('ZADD', leases, string.format('%.6f', server_time()), lease)
end

-- A call is over. Its row may be gone, so this needs the lease only.
local function remove_call(in_flight, calls, leases, lease)
  redis.call('ZREM', leases, lease)
  local replica = redis.call('HGET', calls, lease)
  if replica then
    redis.call('HDEL', calls, lease)
    leave_replica(in_flight, replica)
  end
end

-- Give a row its arrival if it has none. Whether the program is new, 1 or 0.
local function arrive(row, activity, totals, member, arrival)
  if redis.call('HSETNX', row, 'arrival', arrival) == 0 then
    return 0
  end
  redis.call('HINCRBY', totals, 'created', 1)
  if redis.call('ZSCORE', activity, member) then
    -- The row of an earlier program of this name was deleted by hand: that program has ended.
    redis.call('HINCRBY', totals, 'ended', 1)
  end
  return 1
end

-- Remove a program that is in the activity index.
local function forget(row, activity, names, idle, totals, member, program)
  redis.call('DEL', row)
  redis.call('ZREM', names, program)
  redis.call('ZREM', idle, program)
  if redis.call('ZREM', activity, member) == 1 then
    redis.call('HINCRBY', totals, 'ended', 1)
  end
end

-- The programs that a tenant has too many of: those without a call for longest, a few at a time
-- (`rules.ENDED_AT_ONCE`), because after the limit was lowered there may be many. The caller ends
-- them: a script touches only rows that are among its keys.
local ENDED_AT_ONCE = 16
local function too_many(names, idle, limit)
  local over = math.min(redis.call('ZCARD', names) - tonumber(limit), ENDED_AT_ONCE)
  return over > 0 and redis.call('ZRANGE', idle, 0, over - 1) or {}
end

-- Forget what was told of a program that is over, all of it once its last is. `told` is when that
-- will be.
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

-- A program's last activity, which does not go back.
local function touch(activity, member, now)
  local last = redis.call('ZSCORE', activity, member)
  if not last or tonumber(now) > tonumber(last) then
    redis.call('ZADD', activity, now, member)
  end
end

-- Create a program by name, or keep the one that is there. Whether it is new, 1 or 0, and the
-- programs that its tenant has too many of.
local function begin(row, activity, names, idle, totals, member, program, now, limit)
  local created, over = arrive(row, activity, totals, member, now), {}
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
