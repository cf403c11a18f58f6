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

-- Remove a program that is in the activity index.
local function forget(row, activity, names, totals, member, program)
  redis.call('DEL', row)
  redis.call('ZREM', names, program)
  if redis.call('ZREM', activity, member) == 1 then
    redis.call('HINCRBY', totals, 'ended', 1)
  end
end

-- A program's last activity, which does not go back.
local function touch(activity, member, now)
  local last = redis.call('ZSCORE', activity, member)
  if not last or tonumber(now) > tonumber(last) then
    redis.call('ZADD', activity, now, member)
  end
end

