#!lua flags=allow-oom
-- Removes an admission as if it had never happened. Runs on a full server too.
local record = read_record()
if record == 'x' then return reply('done', {}) end
if record then
  if record.day ~= DAY then return reply('stale', {record.at}) end
  open_account()
  release()
  take_from_window(account.requests, min(record.req, THIS_GROUP), 1)
  for i = 1, COUNTERS do
    if counters[i] and record.gen[i] == counters[i].generation then charge(i, -record.held, -unused_on(record, i)) end
  end
  note_usage(record, 0)
  save_account()
else
  -- The record may have expired before the hold.
  open_account()
  if held_by_request then
    release()
    save_account()
  end
end
keep_record('x')
return reply('done', {})
