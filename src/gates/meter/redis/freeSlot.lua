#!lua flags=allow-oom
-- Frees a slot that its settled request kept. Runs on a full server too.
if read_record() ~= 'x' then return reply('done', {}) end
open_account()
if held_by_request then
  release()
  save_account()
end
return reply('done', {})
