-- Change members of a program's budget: a new value, '-' for none, '=' to keep it.
-- KEYS: row   ARGV: the members in order, what happens at a limit last
local row = KEYS[1]

if redis.call('EXISTS', row) == 0 then
  return false
end
local words = words_of(redis.call('HGET', row, 'budget') or '- - - - - - - - refuse')
local limited = false
for i = 1, 9 do
  if ARGV[i] ~= '=' then
    words[i] = ARGV[i]
  end
  limited = limited or (i < 9 and words[i] ~= '-')
end
if limited then
  redis.call('HSET', row, 'budget', table.concat(words, ' '))
else
  redis.call('HDEL', row, 'budget')
end
return pack(redis.call('HGETALL', row))
