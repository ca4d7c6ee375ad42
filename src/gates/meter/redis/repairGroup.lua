#!lua
-- Replaces a group's counters by the ledger's figures, if counters and accounts are as the survey found them and none holds
-- anything. A repaired counter is loaded anew, as in repair.lua.
local holding, version = accounts()
if holding > 0 or version ~= NUMBERS[2] then return reply('done', {0}) end
for i = 1, COUNTERS do
  local tokens = NUMBERS[2 + i]
  if counters[i] and tokens >= 0 then start_counter(KEYS[i], tokens, now, time, call('PTTL', KEYS[i])) end
end
return reply('done', {1})
