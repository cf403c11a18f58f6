-- Read the members. Confirms that the gateway is present and which version it has applied, and
-- reports its background responses.
-- KEYS: version, members, gateways' confirmations
-- ARGV: gateway, lease in seconds (0: the gateway leaves), its version or '', replicas with a
--       response in the background...
-- Returns the version ('' if there is none), the server's time, the number of gateways that are
-- present, of those that have not confirmed the version, all replicas with background responses
-- separated by spaces, and the members, flat, if the version differs from the gateway's.
local confirmed, lease, now = KEYS[3], tonumber(ARGV[2]), server_time()
if lease == 0 then
  redis.call('HDEL', confirmed, ARGV[1])
  return false
end
local entry = {string.format('%.6f', now), ARGV[3] == '' and '-' or ARGV[3]}
for i = 4, #ARGV do
  entry[#entry + 1] = ARGV[i]
end
redis.call('HSET', confirmed, ARGV[1], table.concat(entry, ' '))

local version, present, behind, busy = redis.call('GET', KEYS[1]) or '', 0, 0, {}
local all = redis.call('HGETALL', confirmed)
for i = 1, #all, 2 do
  local at, applied, names = string.match(all[i + 1], '^(%S+) (%S+) ?(.*)$')
  if not at or tonumber(at) < now - lease then
    redis.call('HDEL', confirmed, all[i])
  else
    present = present + 1
    if applied ~= version and not (applied == '-' and version == '') then
      behind = behind + 1
    end
    if names ~= '' then
      busy[#busy + 1] = names
    end
  end
end
local reply = {version, string.format('%.6f', now), present, behind, table.concat(busy, ' ')}
if version ~= ARGV[3] then
  for _, part in ipairs(redis.call('HGETALL', KEYS[2])) do
    reply[#reply + 1] = part
  end
end
return reply
