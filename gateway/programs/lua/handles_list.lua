-- A program's handles that are not over, each as names and texts, the first to end first.
-- KEYS: the program's handles   ARGV: now, what the keys of its tenant's handles begin with
local found = {}
for _, handle in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. ARGV[1], '+inf')) do
  local row = redis.call('HGETALL', ARGV[2] .. handle)
  if #row > 0 then
    found[#found + 1] = row
  end
end
return found
