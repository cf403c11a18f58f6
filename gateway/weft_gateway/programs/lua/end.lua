-- End a program: now, or with the last of its open calls. With `before`, only if it has no open call
-- and its last activity is older.
-- KEYS: row, activity, tenant's names, tenant's idle programs, totals, homes,
--       programs by home
-- ARGV: member, program, before or ''
local row, activity, names, idle = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local totals, homes, home_counts = KEYS[5], KEYS[6], KEYS[7]
local member, program, before = ARGV[1], ARGV[2], ARGV[3]

if redis.call('EXISTS', row) == 0 then
  -- The row was deleted by hand: remove it from the indexes.
  forget(row, activity, names, idle, totals, member, program, homes, home_counts)
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
  forget(row, activity, names, idle, totals, member, program, homes, home_counts)
end
return reply
