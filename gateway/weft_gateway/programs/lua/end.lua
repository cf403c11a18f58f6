-- End a program: at once, or with the last of its open calls. With `before` given, only if it has
-- no open call and its last activity is older than that.
-- KEYS: row, activity, tenant's names, tenant's idle programs, totals, marks of replays
-- ARGV: member, program, event, replay, now, before or ''
local row, activity, names, idle = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local totals, marks = KEYS[5], KEYS[6]
local member, program, before = ARGV[1], ARGV[2], ARGV[6]

if replayed(marks, ARGV[3], ARGV[4] == '1', ARGV[5]) then
  return false
end
if redis.call('EXISTS', row) == 0 then
  -- A row that somebody deleted by hand leaves nothing behind.
  forget(row, activity, names, idle, totals, member, program)
  return false
end
if redis.call('HEXISTS', row, 'ended') == 1 then
  return false
end
local open = open_calls(row)
if before ~= '' then
  local last = redis.call('ZSCORE', activity, member)
  if open > 0 or (last and tonumber(last) >= tonumber(before)) then
    return false
  end
end
redis.call('HSET', row, 'ended', '1')
local reply = pack(redis.call('HGETALL', row))
if open == 0 then
  forget(row, activity, names, idle, totals, member, program)
end
return reply
