-- Put marks at fingerprints, and fold programs.
-- KEYS: the list of all fingerprints in the order they came, fingerprints, folded programs
-- ARGV: seconds to keep, marks at one fingerprint, fingerprints in all, how many now, then a mark
--       for each, then what each folded program is part of ('' if of none)
local keep, most, limit, count = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

for i = 1, count do
  local key, marks = KEYS[1 + i], ARGV[4 + i]
  local before = redis.call('GET', key)
  if before then
    local kept = 1
    for mark in string.gmatch(before, '[^\n]+') do
      if kept < most then
        marks, kept = marks .. '\n' .. mark, kept + 1
      end
    end
  else
    redis.call('RPUSH', KEYS[1], key)
  end
  redis.call('SET', key, marks, 'EX', keep)
end
for i = count + 1, #KEYS - 1 do
  if ARGV[4 + i] == '' then
    redis.call('DEL', KEYS[1 + i])
  else
    redis.call('SET', KEYS[1 + i], ARGV[4 + i], 'EX', keep)
  end
end
while redis.call('LLEN', KEYS[1]) > limit do
  redis.call('DEL', redis.call('LPOP', KEYS[1]))
end
