-- Close a call, once. Returns the row as it is afterwards, even if it goes with this call.
-- KEYS: row, in-flight counts, activity, tenant's names, tenant's idle programs, leases, totals
-- ARGV: member, program, call, now, error, service, waiting, prompt, cached, output, preemptions,
--       lease, last activity as the index has it
local row, in_flight, activity, names, idle = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local leases, totals = KEYS[6], KEYS[7]
local member, program, call, now, service = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[6]

redis.call('ZREM', leases, ARGV[12])
local packed = redis.call('HGET', row, 't:' .. call)
if not packed then
  return false
end
-- arrival, the program's critical path then, replica, and the threads
local path_then, replica = string.match(packed, '^[^\n]*\n([^\n]*)\n([^\n]*)\n')
redis.call('HDEL', row, 't:' .. call)
if redis.call('HINCRBY', in_flight, replica, -1) <= 0 then
  redis.call('HDEL', in_flight, replica)
end
redis.call('HINCRBYFLOAT', row, 'service', service)
redis.call('HINCRBYFLOAT', row, 'waiting', ARGV[7])
-- Algorithm 1, line 4: the longest observed critical path.
local path = tonumber(path_then) + tonumber(service)
local longest = tonumber(redis.call('HGET', row, 'critical_path') or '0')
if path > longest then
  redis.call('HSET', row, 'critical_path', string.format('%.17g', path))
end
local closed = redis.call('HINCRBY', row, 'calls_closed', 1)
redis.call('HINCRBY', row, 'errors', ARGV[5])
redis.call('HINCRBY', row, 'prompt', ARGV[8])
redis.call('HINCRBY', row, 'cached', ARGV[9])
redis.call('HINCRBY', row, 'output', ARGV[10])
redis.call('HINCRBY', row, 'preemptions', ARGV[11])
local last = redis.call('HGET', row, 'last_completion')
if not last or tonumber(now) > tonumber(last) then
  redis.call('HSET', row, 'last_completion', now)
end

local counts = redis.call('HGETALL', in_flight)
local reply = pack({tostring(#counts)}, counts, redis.call('HGETALL', row))
local open = tonumber(redis.call('HGET', row, 'calls')) - closed
if open == 0 and (redis.call('HGET', row, 'ephemeral') == '1' or redis.call('HEXISTS', row, 'ended') == 1) then
  forget(row, activity, names, idle, totals, member, program)
else
  touch(activity, member, ARGV[13])
  if open == 0 then
    redis.call('ZADD', idle, now, program)
  end
end
return reply
