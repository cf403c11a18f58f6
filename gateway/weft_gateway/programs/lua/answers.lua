-- Store answers, or renew those with an empty value. Expired answers are removed, a limited number
-- per call. Over the limit, the answers that the tenant with most bytes used least recently are
-- removed, a limited number per call, too. Returns the members that are not stored, because another
-- tenant owns their id. ARGV: now, lifetime in seconds, maximum bytes, then member, value...
local now = ARGV[1]
local AT_ONCE = 200
local others = {}
local before = tonumber(now) - tonumber(ARGV[2])
for _, member in ipairs(redis.call('ZRANGEBYSCORE', ages, '-inf', before, 'LIMIT', 0, AT_ONCE)) do
  forget_answer(member)
end

for i = 4, #ARGV, 2 do
  local member, packed = ARGV[i], ARGV[i + 1]
  local place, tenant = place_of(member, now)
  local id = owned(member)
  if packed == '' then
    renew(member, now)
  elseif id and redis.call('HSETNX', owners, id, tenant) == 0
      and redis.call('HGET', owners, id) ~= tenant then
    others[#others + 1] = member
  else
    if renew(member, now) then
      count(member, tenant, -1)
    else
      redis.call('ZADD', ages, now, member)
      redis.call('ZADD', order, 0, place)
    end
    redis.call('HSET', answers, member, packed)
    count(member, tenant, 1)
  end
end
for _ = 1, AT_ONCE do
  if tonumber(redis.call('GET', bytes) or 0) <= tonumber(ARGV[3]) then
    break
  end
  local most = redis.call('ZREVRANGE', sizes, 0, 0)[1]
  local oldest = most and oldest_of(most)
  if not oldest then
    break
  end
  forget_answer(oldest)
end
return others
