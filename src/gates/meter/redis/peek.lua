#!lua
-- What is left, without admitting anything.
if not is_today() then return reply('stale', {now, -1}) end
read_record()
local missing = missing_counters(now)
if missing then return missing end
open_accounts()
return reply_with_headroom('left', {})
