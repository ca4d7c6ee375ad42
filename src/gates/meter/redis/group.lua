-- The part that all scripts of a group share; it follows start.lua.
--
-- KEYS     the group's counters: day, week, month and all time; then the accounts of the group
-- Numbers  now in ms or -1; then the numbers of the operation
local COUNTERS = PERIODS
local now, time = clock(NUMBERS[1])

local stored = call('MGET', unpack(KEYS, 1, COUNTERS))
local counters = {}
for i = 1, COUNTERS do counters[i] = parse_counter(stored[i]) end

-- The number of accounts that hold something, and a number that changes with every change of a counter or an account.
local function accounts()
  local holding, states = 0, {}
  for i = 1, COUNTERS do states[i] = stored[i] or '' end
  for i = COUNTERS + 1, #KEYS do
    local packed = call('HGET', KEYS[i], 'w')
    if packed then
      states[#states + 1] = packed
      if call('HLEN', KEYS[i]) > 3 then holding = holding + 1 end
    end
  end
  return holding, tonumber(string.sub(redis.sha1hex(table.concat(states, ' ')), 1, 12), 16)
end
