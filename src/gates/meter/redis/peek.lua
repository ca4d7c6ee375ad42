#!lua
-- What is left, without admitting anything.
if floor(now / DAY_MS) ~= DAY then return reply('stale', {now}) end
read_record()
local missing = missing_counters(now)
if missing then return missing end
open_accounts()
return reply_with_headroom('left', {})
