-- Open calls by replica, counted again if counts were deleted by hand.
-- KEYS: in-flight counts, open calls
return open_by_replica(KEYS[1], KEYS[2])
