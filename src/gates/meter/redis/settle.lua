#!lua flags=allow-oom
-- Ends a request: charges what it used and gives back the rest. Runs on a full server too, because it frees more than it writes.
local admitted_at, owner_held, owner_available, owner_slot, used = own_numbers()

local record = read_record()
if record and record ~= 'x' and record.day ~= DAY then return reply('stale', {record.at, record.day}) end
open_accounts()
if record == 'x' then
  release_lapsed()
else
  record = record or new_record(admitted_at, owner_held, owner_available, owner_slot, -1, {})
  release()
  for i = 1, COUNTERS do
    if counters[i] then
      local charged, exact = charged_on(record, i)
      charge(i, exact and used - charged or max(0, used - charged), -unused_on(record, i))
    end
  end
  note_usage(record, used)
  keep_record('x')
  save_accounts()
end
return reply_with_headroom('left', {})
