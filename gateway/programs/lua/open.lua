-- Open a call. One atomic change; nothing is written before every refusal has been ruled out.
-- KEYS: row, in-flight counts, activity, tenant's names
-- ARGV: member, program, call, thread, candidate, sticky, now, ephemeral, eligible...
local row, in_flight, activity, names = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local member, program, call, thread, candidate = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local sticky, now, ephemeral = ARGV[6] == '1', ARGV[7], ARGV[8]

if redis.call('HEXISTS', row, 't:' .. call) == 1 then
  return redis.error_reply('WEFT call is open already')
end

local created = redis.call('EXISTS', row) == 0
local replica = candidate
if sticky then
  local home = redis.call('HGET', row, 'home')
  if home then
    for i = 9, #ARGV do
      if ARGV[i] == home then
        replica = home
        break
      end
    end
  end
end

if created then
  redis.call('HSET', row, 'arrival', now, 'ephemeral', ephemeral)
  if ephemeral == '0' then
    redis.call('ZADD', names, 0, program)
  end
end
if sticky then
  redis.call('HSET', row, 'home', replica)
end
local path = redis.call('HGET', row, 'critical_path') or '0'
local last = redis.call('HGET', row, 'last_arrival')
if not last or tonumber(now) > tonumber(last) then
  redis.call('HSET', row, 'last_arrival', now)
end
redis.call('HDEL', row, 'ended')
redis.call('HINCRBY', row, 'calls', 1)
redis.call('HSET', row, 't:' .. call, table.concat({now, path, replica, thread}, '\n'))
redis.call('HINCRBY', in_flight, replica, 1)
redis.call('ZADD', activity, 'GT', now, member)
return {replica, created and 1 or 0, redis.call('HGETALL', row), redis.call('HGETALL', in_flight)}
