-- Admit a call under a tenant's limits, or correct its tokens. One hash per tenant:
--   r, rt: requests left and the time of that count; k, kt: the same for tokens;
--   f:GATEWAY: a gateway's calls in flight and the time of its last renewal, "count time".
-- KEYS: the hash. ARGV: requests per minute, tokens per minute, calls in flight (0: no limit),
--   requests wanted (0 or 1), tokens wanted, gateway, its ended calls, lease in seconds,
--   its calls in flight without the wanted one, or "" to use the stored count.
-- Returns {limit reached: "" or its name, seconds to wait, requests left, tokens left}, as strings.
local per_minute = { r = tonumber(ARGV[1]), k = tonumber(ARGV[2]) }
local most, wanted, tokens = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local ended, lease = tonumber(ARGV[7]), tonumber(ARGV[8])
local clock = redis.call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1000000

local function level(name)
  local known = redis.call('HMGET', KEYS[1], name, name .. 't')
  if not known[1] or not known[2] then return per_minute[name] end
  local gained = math.max(0, now - tonumber(known[2])) * per_minute[name] / 60
  return math.min(per_minute[name], tonumber(known[1]) + gained)
end

-- The count of a gateway that was renewed within its lease, else nil.
local function fresh(entry)
  local count, at = string.match(entry or '', '^(%d+) ([%d.]+)$')
  return at and now - tonumber(at) < lease and tonumber(count) or nil
end

local function text(number) return string.format('%.6f', number) end

local requests = per_minute.r > 0 and level('r') or 0
local left = per_minute.k > 0 and level('k') or 0

local field = 'f:' .. ARGV[6]
local own = tonumber(ARGV[9]) or fresh(redis.call('HGET', KEYS[1], field)) or 0
own = math.max(0, own - ended)

if wanted > 0 then
  if most > 0 then
    local others, all = 0, redis.call('HGETALL', KEYS[1])
    for i = 1, #all, 2 do
      if string.sub(all[i], 1, 2) == 'f:' and all[i] ~= field then
        local count = fresh(all[i + 1])
        if count then
          others = others + count
        else
          redis.call('HDEL', KEYS[1], all[i])
        end
      end
    end
    if others + own >= most then return { 'calls_in_flight', '0', text(requests), text(left) } end
  end
  if per_minute.r > 0 and requests < 1 then
    return { 'requests_per_minute', text((1 - requests) * 60 / per_minute.r), text(requests), text(left) }
  end
  local missing = math.min(tokens, per_minute.k) - left
  if per_minute.k > 0 and missing > 0 then
    return { 'tokens_per_minute', text(missing * 60 / per_minute.k), text(requests), text(left) }
  end
end

local keep = lease
if per_minute.r > 0 then
  requests = requests - wanted
  redis.call('HSET', KEYS[1], 'r', text(requests), 'rt', text(now))
  keep = math.max(keep, 60)
end
if per_minute.k > 0 then
  left = left - tokens
  redis.call('HSET', KEYS[1], 'k', text(left), 'kt', text(now))
  keep = math.max(keep, (per_minute.k - left) * 60 / per_minute.k)
end
if most > 0 then
  redis.call('HSET', KEYS[1], field, string.format('%d %.6f', own + wanted, now))
end
redis.call('EXPIRE', KEYS[1], math.ceil(keep) + 1)
return { '', '0', text(requests), text(left) }
