-- Return the values of an answer and of those that it continues, until one is missing or the limits
-- are reached. All become their tenant's latest.
-- ARGV: now, lifetime in seconds, tenant, name, maximum answers, maximum bytes
local now, name = ARGV[1], ARGV[4]
local found, size = {}, 0
while name ~= '' and #found < tonumber(ARGV[5]) and size <= tonumber(ARGV[6]) do
  local member = ARGV[3] .. '/' .. name
  local used = redis.call('ZSCORE', ages, member)
  if not used or tonumber(now) - tonumber(used) > tonumber(ARGV[2]) then
    break
  end
  local packed = redis.call('HGET', answers, member)
  if not packed then
    break
  end
  renew(member, now)
  found[#found + 1] = packed
  size = size + #packed
  name = string.match(packed, '^([^\n]*)')
end
return found
