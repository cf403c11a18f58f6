-- Leases that were not renewed for a number of seconds of the server's clock.
-- KEYS: leases, open calls   ARGV: seconds, server time until which no lease expires
local leases, calls, now = KEYS[1], KEYS[2], server_time()

if redis.call('HLEN', calls) > redis.call('ZCARD', leases) then
  -- Leases were deleted by hand. Without one, a dead gateway's call would never be closed.
  for _, lease in ipairs(redis.call('HKEYS', calls)) do
    redis.call('ZADD', leases, 'NX', string.format('%.6f', now), lease)
  end
end
if now < tonumber(ARGV[2]) then
  return {}
end
return redis.call('ZRANGEBYSCORE', leases, '-inf', '(' .. string.format('%.6f', now - ARGV[1]))
