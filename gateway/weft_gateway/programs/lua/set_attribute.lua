-- Set an attribute of a program, which is created if missing; an empty text removes the attribute.
-- KEYS: row, activity, tenant's names, tenant's idle programs, totals, homes,
--       programs by home
-- ARGV: member, program, now, limit of programs per tenant, name, text, expiry
local row, activity, names, idle = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local totals, homes, home_counts = KEYS[5], KEYS[6], KEYS[7]
local now, field, text = ARGV[3], 'h:' .. ARGV[5], ARGV[6]

local over, _ = {}
if text ~= '' then
  _, over = begin(row, activity, names, idle, totals, ARGV[1], ARGV[2], now, ARGV[4],
    homes, home_counts)
  redis.call('HSET', row, field, ARGV[7] .. '\n' .. text)
elseif redis.call('EXISTS', row) == 1 then
  redis.call('HDEL', row, field)
else
  return false
end
local whole, last = redis.call('HGETALL', row), nil
for i = 1, #whole, 2 do
  if string.sub(whole[i], 1, 2) == 'h:' then
    local until_s = string.match(whole[i + 1], '^[^\n]*')
    if not last or tonumber(until_s) > tonumber(last) then
      last = until_s
    end
  end
end
if last then
  redis.call('HSET', row, 'told', last)
else
  redis.call('HDEL', row, 'told')
end
return pack({tostring(#over)}, over, redis.call('HGETALL', row))
