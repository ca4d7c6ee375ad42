#!lua
-- Extends the lease of a slot whose request is settled: the record is 'x', and a field without tokens keeps the slot.
local record = read_record()
if record and record ~= 'x' then return reply('done', {}) end
open_account()
-- The request is over and has no slot: it was freed, or its lease has ended.
if held_by_request or not record then
  release()
  lease(1, 0)
  keep_record('x')
  save_account()
end
return reply('done', {})
