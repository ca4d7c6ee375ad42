#!lua
-- Admits a request, or returns the claim that has no room. It takes all or nothing: request, tokens, slot and budgets.
local asked, wants_slot, least = own_numbers()
-- The numbers of the claims in the reply: 1 to 3, then the six budgets.
local BY_REQUESTS, BY_TOKENS, BY_SLOTS = 1, 2, 3

local record = read_record()
if record == 'x' then return reply('ended', {}) end
if record then
  if record.day ~= DAY then return reply('stale', {record.at}) end
elseif floor(now / DAY_MS) ~= DAY then
  return reply('stale', {now})
end
local missing = missing_counters(record and record.at or now)
if missing then return missing end
open_account()

if record then return reply_with_headroom('reserved', {record.at, record.held, record.avail, record.slot}) end

local room = token_room()
local available = room
for i = 1, COUNTERS do
  if BUDGETS[i] >= 0 then available = min(available, BUDGETS[i] - counters[i].tokens) end
end
available = max(0, available)

if account.requests.sum >= REQUEST_LIMIT then
  return reply_with_headroom('refused', {BY_REQUESTS, REQUEST_LIMIT, wait_for(account.requests, REQUEST_LIMIT - 1), now})
end
if asked > 0 and room <= 0 then
  -- Held tokens may be released unused at any time, so they alone are no reason to wait.
  local held = account.held < TOKEN_LIMIT and account.held or 0
  return reply_with_headroom('refused', {BY_TOKENS, TOKEN_LIMIT, wait_for(account.tokens, TOKEN_LIMIT - 1 - held), now})
end
if wants_slot == 1 and account.taken >= SLOT_LIMIT then
  return reply_with_headroom('refused', {BY_SLOTS, SLOT_LIMIT, 1, now})
end
if asked > 0 then
  -- When several budgets are spent, the one that ends last decides, because the request cannot pass before. Of equals, the
  -- account's own.
  --
  -- Held tokens may be released unused at any time. A budget that only they fill decides last, and its wait is not 0.
  local held_by_others
  for period = 3, 1, -1 do
    for i = period, COUNTERS, 3 do
      local counter = counters[i]
      if BUDGETS[i] >= 0 and counter.tokens >= BUDGETS[i] then
        if counter.tokens - counter.held >= BUDGETS[i] then
          return reply_with_headroom('refused', {BY_SLOTS + i, BUDGETS[i], 0, now})
        end
        held_by_others = held_by_others or i
      end
    end
  end
  if held_by_others then
    return reply_with_headroom('refused', {BY_SLOTS + held_by_others, BUDGETS[held_by_others], 1, now})
  end
end

local held = max(min(asked, available), least)
record = new_record(now, held, available, wants_slot, THIS_GROUP, generations)
add_to_window(account.requests, 1)
if wants_slot == 1 or held > 0 then lease(wants_slot, held) end
for i = 1, COUNTERS do
  if counters[i] then charge(i, held, held) end
end
keep_record(record)
save_account()
return reply_with_headroom('reserved', {record.at, record.held, record.avail, record.slot})
