#!lua
-- Replaces the account's counters by the ledger's figures, if the account has not changed since the snapshot and holds nothing.
--
-- A repaired counter has a new generation: what was charged to the old one is in the ledger's figure. No request that Redis
-- knows holds anything. So a request that is settled later was lost by Redis, and is charged as after any load.
local version, tokens = own_numbers(), {select(2, own_numbers())}
read_record()
open_accounts()
local account = accounts[1]
local exists = call('EXISTS', account.key) == 1
if (exists and account.writes or 0) ~= version or call('HLEN', account.key) > 3 then return reply('repaired', {0}) end
local _, time = clock(now)
for i = 1, PERIODS do
  if counters[i] and tokens[i] >= 0 then
    local key = KEYS[BEFORE_COUNTERS + i]
    start_counter(key, tokens[i], now, time, call('PTTL', key))
  end
end
if exists then save_account(account) end
return reply('repaired', {1})
