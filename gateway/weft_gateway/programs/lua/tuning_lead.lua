-- Take, keep or release the lock of the gateway that tunes.
-- KEYS: tuner   ARGV: gateway, lease in milliseconds (0: release)
-- Returns 1 if the gateway has the lock.
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then
  return 0
end
if ARGV[2] == '0' then
  redis.call('DEL', KEYS[1])
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
