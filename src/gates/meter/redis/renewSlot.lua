#!lua
-- Extends the lease of a slot whose request is settled: the record is 'x', and a field without tokens keeps the slot.
local record = read_record()
if record and record ~= 'x' then return reply('done', {}) end
open_accounts()
-- The request is over and has no slot: it was freed, or its lease has ended.
if is_held() or not record then
  release()
  lease(1, 0)
  keep_record('x')
  save_accounts()
end
return reply('done', {})
