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

-- Whether the event with this id has been replayed. A gateway that lost the answer to an event
-- replays it later, and the first one may still lie in a socket then: whichever comes second
-- changes nothing. '' is an event that nobody replays.
local REMEMBERED_S = 86400
local function replayed(marks, id, replay, now)
  if id == '' then
    return false
  end
  if not replay then
    return redis.call('ZSCORE', marks, id) ~= false
  end
  redis.call('ZREMRANGEBYSCORE', marks, '-inf', tonumber(now) - REMEMBERED_S)
  local added = redis.call('ZADD', marks, 'NX', now, id)
  redis.call('EXPIRE', marks, REMEMBERED_S)
  return added == 0
end

-- Calls of a program that are open.
local function open_calls(row)
  local calls = tonumber(redis.call('HGET', row, 'calls') or '0')
  return calls - tonumber(redis.call('HGET', row, 'calls_closed') or '0')
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

-- A tenant has one more named program, `program`. Beyond `limit`, end those of his that have been
-- without a call for longest, a few at a time (`rules.ENDED_AT_ONCE`): after the limit was lowered
-- there may be many.
local ENDED_AT_ONCE = 16
local function make_room(row, activity, names, idle, totals, member, program, limit)
  local over = math.min(redis.call('ZCARD', names) - limit, ENDED_AT_ONCE)
  if over <= 0 then
    return
  end
  local rows, members = string.sub(row, 1, -#program - 1), string.sub(member, 1, -#program - 1)
  for _, other in ipairs(redis.call('ZRANGE', idle, 0, over - 1)) do
    forget(rows .. other, activity, names, idle, totals, members .. other, other)
  end
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

-- Create a program by name, or keep the one that is there. Whether it is new, 1 or 0.
local function begin(row, activity, names, idle, totals, member, program, now, limit)
  local created = redis.call('HSETNX', row, 'arrival', now)
  redis.call('HINCRBY', totals, 'created', created)
  redis.call('HSET', row, 'ephemeral', '0')
  redis.call('HDEL', row, 'ended')
  if redis.call('ZADD', names, 0, program) == 1 then
    make_room(row, activity, names, idle, totals, member, program, tonumber(limit))
  end
  if open_calls(row) == 0 then
    redis.call('ZADD', idle, now, program)
  end
  touch(activity, member, now)
  return created
end
