-- Renew a gateway's presence, or remove it, and count the gateways that are present.
-- KEYS: gateways   ARGV: gateway, lease in seconds (0: the gateway leaves)
local gateways, lease = KEYS[1], tonumber(ARGV[2])
if lease == 0 then
  redis.call('ZREM', gateways, ARGV[1])
else
  local now = server_time()
  redis.call('ZADD', gateways, string.format('%.6f', now), ARGV[1])
  redis.call('ZREMRANGEBYSCORE', gateways, '-inf', string.format('(%.6f', now - lease))
end
return redis.call('ZCARD', gateways)
