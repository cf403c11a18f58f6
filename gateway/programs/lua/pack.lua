-- Comes before every script. A reply of many strings costs the client more to parse than the whole
-- call costs the server, so it is sent as one: their lengths, a newline, then all of them.
local function pack(...)
  local parts, lengths = {}, {}
  for _, list in ipairs({...}) do
    for _, part in ipairs(list) do
      parts[#parts + 1] = part
      lengths[#lengths + 1] = #part
    end
  end
  return table.concat(lengths, ' ') .. '\n' .. table.concat(parts)
end

