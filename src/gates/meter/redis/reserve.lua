#!lua
-- Admits a request, or returns the claim that has no room. It takes all or nothing: request, tokens, slot and budgets.
local asked, wants_slot, least = own_numbers()

local record = read_record()
if record == 'x' then return reply('ended', {}) end
if record then
  if record.day ~= DAY then return reply('stale', {record.at, record.day}) end
elseif not is_today() then
  return reply('stale', {now, -1})
end
open_accounts()
-- What the key refuses in any case takes no user in and needs no counters: a name costs nothing to invent.
local key = accounts[1]
local key_is_full = MOST_USERS > 0 and not record and (
  key.requests.sum >= key.request_limit or asked > 0 and room_of(key) <= 0 or wants_slot == 1 and key.taken >= key.slot_limit
)
if not key_is_full then
  if MOST_USERS > 0 and not record then
    -- Before its counters are loaded, because each would stay for days.
    local wait = take_user_in()
    if wait then return reply_with_headroom('refused', {ACCOUNTS * LIMITS + COUNTERS + 1, MOST_USERS, wait, now}) end
  end
  local missing = missing_counters(record and record.at or now)
  if missing then return missing end
end

if record then return reply_with_headroom('reserved', {record.at, record.held, record.avail, record.slot}) end

local room = token_room()
local available = room
for i = 1, COUNTERS do
  if BUDGETS[i] >= 0 and counters[i] then available = min(available, BUDGETS[i] - counters[i].tokens) end
end
available = max(0, available)

for a = 1, ACCOUNTS do
  local account, before = accounts[a], (a - 1) * LIMITS
  local requests, tokens = account.request_limit, account.token_limit
  if account.requests.sum >= requests then
    return reply_with_headroom('refused', {before + BY_REQUESTS, requests, wait_for(account.requests, requests - 1), now})
  end
  if asked > 0 and room_of(account) <= 0 then
    -- Held tokens may be released unused at any time, so they alone are no reason to wait.
    local held = account.held < tokens and account.held or 0
    return reply_with_headroom('refused', {before + BY_TOKENS, tokens, wait_for(account.tokens, tokens - 1 - held), now})
  end
  if wants_slot == 1 and account.taken >= account.slot_limit then
    return reply_with_headroom('refused', {before + BY_SLOTS, account.slot_limit, 1, now})
  end
end
if asked > 0 then
  -- When several budgets are spent, the one that ends last decides, because the request cannot pass before. Of equals, the
  -- account's own.
  --
  -- Held tokens may be released unused at any time. A budget that only they fill decides last, and its wait is not 0.
  local held_by_others
  for n = PERIODS, 1, -1 do
    local period = WEEK_IS_LATER == 1 and (n == 2 or n == 3) and 5 - n or n
    for i = period, COUNTERS, PERIODS do
      local counter = counters[i]
      if BUDGETS[i] >= 0 and counter.tokens >= BUDGETS[i] then
        if counter.tokens - counter.held >= BUDGETS[i] then
          return reply_with_headroom('refused', {ACCOUNTS * LIMITS + i, BUDGETS[i], 0, now})
        end
        held_by_others = held_by_others or i
      end
    end
  end
  if held_by_others then
    return reply_with_headroom('refused', {ACCOUNTS * LIMITS + held_by_others, BUDGETS[held_by_others], 1, now})
  end
end

local held = max(min(asked, available), least)
record = new_record(now, held, available, wants_slot, THIS_GROUP, generations)
for a = 1, ACCOUNTS do add_to_window(accounts[a].requests, 1) end
if wants_slot == 1 or held > 0 then lease(wants_slot, held) end
for i = 1, COUNTERS do
  if counters[i] then charge(i, held, held) end
end
keep_record(record)
save_accounts()
return reply_with_headroom('reserved', {record.at, record.held, record.avail, record.slot})
