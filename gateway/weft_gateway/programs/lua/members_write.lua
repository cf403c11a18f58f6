-- Change members, if the version is still the expected one.
-- KEYS: version, members
-- ARGV: expected version ('' if there is none), new version, then name and record ('' to delete)...
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then
  return 0
end
for i = 3, #ARGV, 2 do
  if ARGV[i + 1] == '' then
    redis.call('HDEL', KEYS[2], ARGV[i])
  else
    redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1])
  end
end
redis.call('SET', KEYS[1], ARGV[2])
return 1
