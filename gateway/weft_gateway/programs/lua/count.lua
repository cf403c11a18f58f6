-- Open calls by replica, counted again if counts were deleted by hand, and their costs.
-- KEYS: in-flight counts, open calls, work
count_work(KEYS[2], KEYS[3])
local counts = open_by_replica(KEYS[1], KEYS[2])
return pack({stamp(), tostring(#counts)}, counts, redis.call('HGETALL', KEYS[3]))
