-- Renew the leases of open calls by the server's clock; closed calls stay closed. A call that is in
-- its row and missing in the index of open calls is restored.
-- KEYS: leases, in-flight counts, open calls, work, then each call's row
-- ARGV: each call's lease and id
local leases, in_flight, calls, work = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

for i = 5, #KEYS do
  local lease, call = ARGV[2 * i - 9], ARGV[2 * i - 8]
  local value = redis.call('HGET', calls, lease)
  if not value then
    local packed = redis.call('HGET', KEYS[i], 't:' .. call)
    if packed then
      -- arrival, critical path, calls of the path, cost, claim, replica, and the threads
      local cost, replica = string.match(packed, '^[^\n]*\n[^ \n]* %d+ ?(%d*)[%d ]*\n([^\n]*)\n')
      value = replica and placed(replica, cost == '' and '0' or cost)
    end
  end
  if value then
    add_call(in_flight, calls, leases, lease, value, work)
  end
end
return stamp()
