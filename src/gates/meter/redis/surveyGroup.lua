#!lua
-- The state of a group: its version, the number of its accounts that hold something, and its counters.
local holding, version = accounts()
local numbers = {version, holding}
for i = 1, COUNTERS do numbers[2 + i] = counters[i] and counters[i].tokens or -1 end
return reply('surveyed', numbers)
