#!lua
-- Records what a running request has used, extends its lease, and holds more tokens for it, as many as are left.
local admitted_at, owner_held, owner_available, owner_slot, used, wanted = own_numbers()

local record = read_record()
if record == 'x' then return reply('renewed', {0, 1}) end
-- A request that Redis has lost: it is created again from the numbers of its owner.
record = record or new_record(admitted_at, owner_held, owner_available, owner_slot, -1, {})
if record.day ~= DAY then return reply('stale', {record.at, record.day}) end
open_accounts()
release()
local unused = {}
for i = 1, COUNTERS do
  if counters[i] then unused[i] = unused_on(record, i) end
end
note_usage(record, max(record.used, used))

local least = max(record.held, record.used)
local room, unknown = token_room() - (least - record.used), false
for i = 1, COUNTERS do
  if BUDGETS[i] >= 0 then
    if counters[i] then
      room = min(room, BUDGETS[i] - counters[i].tokens - (least - charged_on(record, i)))
    else
      unknown = true
    end
  end
end
local more = min(max(wanted - least, 0), max(room, 0))
local exhausted = least + more < wanted
-- A missing counter grants no tokens. It is not known to be spent either.
if unknown then more = 0 end
local held = least + more
for i = 1, COUNTERS do
  if counters[i] then
    local charged = charged_on(record, i)
    if charged == 0 then record.gen[i] = counters[i].generation end
    local knows = record.gen[i] == counters[i].generation
    charge(i, held - charged, (knows and held - record.used or 0) - unused[i])
  end
end
record.held = held
if record.slot == 1 or held > record.used then lease(record.slot, held - record.used) end
keep_record(record)
save_accounts()
return reply('renewed', {held, exhausted and 1 or 0})
