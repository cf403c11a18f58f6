"""The curve of agents at once: sessions at once over those that fit the cache, against throughput
and the time to complete a session. Closed loop: when a session ends, the next one begins.
"""
