-- Programs by home, counted again if counts were deleted by hand.
-- KEYS: programs by home, homes
return open_by_replica(KEYS[1], KEYS[2])
