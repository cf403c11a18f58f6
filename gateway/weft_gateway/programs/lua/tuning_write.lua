-- Replace the tuned values, if the version is still the expected one.
-- KEYS: tuning   ARGV: expected version ('' if there is none), new version, values
local known = redis.call('GET', KEYS[1])
if (known and string.match(known, '^[^\n]*') or '') ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[2] .. '\n' .. ARGV[3])
return 1
