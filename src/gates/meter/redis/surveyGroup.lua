#!lua
-- What Redis has of a group's counters: its version, how many of its accounts hold something, and the counters.
local holding, version = accounts()
local numbers = {version, holding}
for i = 1, COUNTERS do numbers[2 + i] = counters[i] and counters[i].tokens or -1 end
return reply('surveyed', numbers)
