#!lua
-- The state of an account, for the days of the keys: its version, its open requests, its counters, and the ids of requests
-- whose lease has ended.
read_record()
open_accounts()
local account = accounts[1]
local fields, running, lapsed = call('HGETALL', account.key), 0, {}
for i = 1, #fields, 2 do
  if match(fields[i], '^h') then
    if match(fields[i + 1], ':0$') then
      if #lapsed < MOST_LAPSED then lapsed[#lapsed + 1] = string.sub(fields[i], 2) end
    else
      running = running + 1
    end
  end
end
local numbers = {#fields > 0 and account.writes or 0, running}
for i = 1, PERIODS do numbers[2 + i] = counters[i] and counters[i].tokens or -1 end
-- An empty table would be encoded as an object.
local ids = #lapsed > 0 and cjson.encode(lapsed) or '[]'
return string.sub(reply('surveyed', numbers), 1, -2) .. ',' .. ids .. ']'
