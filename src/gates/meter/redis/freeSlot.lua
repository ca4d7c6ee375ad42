#!lua flags=allow-oom
-- Frees a slot that its settled request kept. Runs on a full server too.
if read_record() ~= 'x' then return reply('done', {}) end
open_accounts()
if is_held() then
  release()
  save_accounts()
end
return reply('done', {})
