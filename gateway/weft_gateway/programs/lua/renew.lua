-- Renew the leases of open calls by the server's clock; closed calls stay closed. A call that is in
-- its row and missing in the index of open calls is restored.
-- KEYS: leases, in-flight counts, open calls, then each call's row
-- ARGV: each call's lease and id
local leases, in_flight, calls = KEYS[1], KEYS[2], KEYS[3]

for i = 4, #KEYS do
  local lease, call = ARGV[2 * i - 7], ARGV[2 * i - 6]
  local replica = redis.call('HGET', calls, lease)
  if not replica then
    local packed = redis.call('HGET', KEYS[i], 't:' .. call)
    -- arrival, critical path, replica, and the threads
    replica = packed and string.match(packed, '^[^\n]*\n[^\n]*\n([^\n]*)\n')
  end
  if replica then
    add_call(in_flight, calls, leases, lease, replica)
  end
end
return string.format('%.6f', server_time())
