#!lua
-- Creates the counters that Redis does not have, from the ledger's figures. It follows start.lua only.
--
-- KEYS     counters
-- Numbers  now in ms or -1; then for each counter its tokens and its lifetime in ms
local now, time = clock(NUMBERS[1])
for i, key in ipairs(KEYS) do
  if not parse_counter(call('GET', key)) then start_counter(key, NUMBERS[2 * i], now, time, NUMBERS[2 * i + 1]) end
end
return reply('done', {})
