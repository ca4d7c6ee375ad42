#!lua
-- The ids of all requests of an account that have a slot or hold tokens.
open_account()
local names, ids = call('HKEYS', ACCOUNT), {}
for i = 1, #names do
  if names[i] ~= 'w' then ids[#ids + 1] = string.sub(names[i], 2) end
end
-- An id may contain a blank, so ids come after the numbers, each after a semicolon.
return reply('holders', {}) .. ';' .. table.concat(ids, ';')
