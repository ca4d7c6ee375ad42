#!lua flags=allow-oom
-- Removes an admission as if it had never happened. Runs on a full server too.
local record = read_record()
if record == 'x' then
  open_accounts()
  release_lapsed()
  return reply('done', {})
end
if record then
  if record.day ~= DAY then return reply('stale', {record.at, record.day}) end
  open_accounts()
  release()
  for a = 1, ACCOUNTS do take_from_window(accounts[a].requests, min(record.req, THIS_GROUP), 1) end
  for i = 1, COUNTERS do
    if counters[i] and record.gen[i] == counters[i].generation then charge(i, -record.held, -unused_on(record, i)) end
  end
  note_usage(record, 0)
  save_accounts()
else
  -- The record may have expired before the hold.
  open_accounts()
  if is_held() then
    release()
    save_accounts()
  end
end
keep_record('x')
return reply('done', {})
