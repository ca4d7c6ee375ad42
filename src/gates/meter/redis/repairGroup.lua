#!lua
-- Replaces a group's counters by the ledger's figures, if counters and accounts have not changed since the
-- snapshot and no account holds anything. A repaired counter has a new generation, as in repair.lua.
local holding, version = accounts()
if holding > 0 or version ~= NUMBERS[2] then return reply('repaired', {0}) end
for i = 1, COUNTERS do
  local tokens = NUMBERS[2 + i]
  if counters[i] and tokens >= 0 then start_counter(KEYS[i], tokens, now, time, call('PTTL', KEYS[i])) end
end
return reply('repaired', {1})
