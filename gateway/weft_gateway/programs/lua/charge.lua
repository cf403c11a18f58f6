-- Add to a day's usage, once.
-- KEYS: the day's usage, the name of this addition
-- ARGV: the day's limits, seconds for which the name is known, then each payer and what it used
if redis.call('SET', KEYS[2], '1', 'NX', 'EX', ARGV[2]) then
  for i = 3, #ARGV, 2 do
    charge(KEYS[1], ARGV[i], ARGV[1], ARGV[i + 1])
  end
end
return 1
