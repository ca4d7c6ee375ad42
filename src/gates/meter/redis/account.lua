-- The functions that all scripts of an account share; they follow state.lua. After them come `operate`, which is the operation
-- itself (scripts.ts), and batch.lua, which runs it for each request of the call.

-- The numbers of the operation.
local function own_numbers()
  local before = BEFORE_NUMBERS + (REQUEST - 1) * OWN_NUMBERS
  return unpack(NUMBERS, before + 1, before + OWN_NUMBERS)
end

-- The groups of a window before the last one. They are read when they are needed.
local function text_of(window)
  window.text = window.text or call('HGET', window.key, window.field) or ''
  return window.text
end

local function set_text(window, text)
  window.text, window.changed, window.oldest = text, true, tonumber(match(text, '^%d+')) or NEVER
end

-- Appends the last group to the text, so that another can be the last.
local function push_group(window)
  if window.at then set_text(window, format('%s%d:%d ', text_of(window), window.at, window.amount)) end
end

-- Makes the last group of the text the last group.
local function pop_group(window)
  local text, at, amount = match(text_of(window), '^(.*)%f[%d](%d+):(%d+) $')
  window.at, window.amount = tonumber(at), tonumber(amount) or 0
  if at then set_text(window, text) end
end

local function add_to_window(window, amount)
  local at = window.at
  if at and floor(at / GROUP_MS) == THIS_GROUP then
    window.at, window.amount = max(now, at), window.amount + amount
  else
    push_group(window)
    window.at, window.amount = now, amount
  end
  window.sum = window.sum + amount
end

-- Takes up to `amount` back from a group that is still in the window. Returns how much it took.
local function take_from_window(window, group, amount)
  local taken = 0
  if window.at and floor(window.at / GROUP_MS) == group then
    taken = min(amount, window.amount)
    window.amount = window.amount - taken
    if window.amount == 0 then pop_group(window) end
  elseif window.oldest < (group + 1) * GROUP_MS then
    set_text(window, string.gsub(text_of(window), '(%d+):(%d+) ', function(at, there)
      if taken > 0 or floor(at / GROUP_MS) ~= group then return end
      taken = min(amount, tonumber(there))
      return there - taken > 0 and format('%d:%d ', at, there - taken) or ''
    end))
  end
  window.sum = window.sum - taken
  return taken
end

-- Drops the groups that have left the window. An entry with a later time than now counts as of now: the clock went back.
local function move_window(window, went_back)
  local oldest = now - WINDOW_MS
  if window.at and window.at <= oldest then
    window.at, window.amount, window.sum = nil, 0, 0
    if window.oldest < NEVER then set_text(window, '') end
  elseif window.oldest <= oldest then
    local text, from = text_of(window), 1
    for at, amount, after in string.gmatch(text, '(%d+):(%d+) ()') do
      if tonumber(at) > oldest then break end
      window.sum, from = window.sum - amount, after
    end
    set_text(window, string.sub(text, from))
  end
  if went_back then
    local later = 0
    while window.at and window.at > now do
      later = later + window.amount
      pop_group(window)
    end
    if later > 0 then
      push_group(window)
      window.at, window.amount = now, later
    end
  end
end

local function save_account(account)
  account.writes, account.changed = account.writes + 1, true
end

local function save_accounts()
  for a = 1, ACCOUNTS do save_account(accounts[a]) end
end

-- Sets the field of this request; false removes it.
local function set_field(account, value)
  account.fields[NAME], account.changed_fields[NAME] = value, true
end

-- Whether an account has a slot or a hold of this request.
local function is_held()
  for a = 1, ACCOUNTS do
    if accounts[a].fields[NAME] then return true end
  end
end

-- Gives back the slot and the hold of this request.
local function release()
  for a = 1, ACCOUNTS do
    local account = accounts[a]
    local field = account.fields[NAME]
    if field then
      local slot, tokens = match(field, '^(%d):(%d+)')
      account.taken, account.held = account.taken - slot, account.held - tokens
      set_field(account, false)
    end
  end
end

-- Gives back what is held beyond a lease of a request that is over: it was ended for one account only.
local function release_lapsed()
  for a = 1, ACCOUNTS do
    local account = accounts[a]
    local tokens = match(account.fields[NAME] or '', '^0:(%d+):0$')
    if tokens then
      account.held = account.held - tokens
      set_field(account, false)
      save_account(account)
    end
  end
end

-- Gives this request a slot (1 or 0) and a hold, until its lease ends.
local function lease(slot, tokens)
  local ends = now + LEASE
  for a = 1, ACCOUNTS do
    local account = accounts[a]
    account.taken, account.held = account.taken + slot, account.held + tokens
    account.next_end = min(account.next_end, ends)
    set_field(account, format('%d:%d:%d', slot, tokens, ends))
  end
end

-- Ends the leases that are over: it frees their slots. Their tokens stay held, with 0 as the end of the lease. No lease is
-- longer than a new one, because the clock may have gone back.
local function end_leases(account)
  local next_end, held, taken, fields = NEVER, 0, 0, call('HGETALL', account.key)
  for i = 1, #fields, 2 do
    local name = fields[i]
    local slot, tokens, ends = match(fields[i + 1], '^(%d):(%d+):(%d+)$')
    if slot and name ~= 'w' then
      ends = tonumber(ends)
      if ends <= now then
        local lapsed = tokens ~= '0' and format('0:%s:0', tokens)
        if not lapsed then
          call('HDEL', account.key, name)
        elseif ends > 0 then
          call('HSET', account.key, name, lapsed)
        end
        if account.fields[name] ~= nil then account.fields[name] = lapsed end
        held = held + tokens
      else
        if ends > now + LEASE then
          ends = now + LEASE
          call('HSET', account.key, name, format('%s:%s:%d', slot, tokens, ends))
        end
        next_end, held, taken = min(next_end, ends), held + tokens, taken + slot
      end
    end
  end
  account.next_end, account.held, account.taken = next_end, held, taken
  save_account(account)
end

local function unpack_account(packed)
  local account, requests, tokens = {}, {field = 'r'}, {field = 't'}
  account.requests, account.tokens = requests, tokens
  account.last_time, account.held, account.taken, account.next_end, account.kept_until, account.writes,
  requests.sum, requests.amount, requests.oldest, requests.at,
  tokens.sum, tokens.amount, tokens.oldest, tokens.at = cmsgpack.unpack(packed)
  return account
end

local function pack_account(account)
  local requests, tokens = account.requests, account.tokens
  return cmsgpack.pack(
    account.last_time, account.held, account.taken, account.next_end, account.kept_until, account.writes,
    requests.sum, requests.amount, requests.oldest, requests.at or false,
    tokens.sum, tokens.amount, tokens.oldest, tokens.at or false
  )
end

local function new_window(field)
  return {field = field, sum = 0, amount = 0, oldest = NEVER, text = '', changed = true}
end

-- Reads an account and moves its windows to now. `before`: the numbers before those of its limits.
local function read_account(key, before)
  local account = opened[key]
  local stored = account and call('HMGET', key, unpack(names)) or call('HMGET', key, 'w', unpack(names))
  local is_open, fields = account, account and account.fields or {}
  for i = 1, REQUESTS_HERE do
    if fields[names[i]] == nil then fields[names[i]] = stored[is_open and i or i + 1] end
  end
  account = account or stored[1] and unpack_account(stored[1]) or {
    last_time = now, held = 0, taken = 0, next_end = NEVER, kept_until = 0, writes = now,
    requests = new_window('r'), tokens = new_window('t')
  }
  account.request_limit, account.token_limit, account.slot_limit = unpack(NUMBERS, before + 1, before + 3)
  if is_open then return account end
  opened[key] = account
  account.key, account.fields, account.changed, account.changed_fields = key, fields, false, {}
  account.requests.key, account.tokens.key = key, key
  local went_back = now < account.last_time
  move_window(account.requests, went_back)
  move_window(account.tokens, went_back)
  -- The clock went back: leases may be longer than a new one, and the key may expire too early.
  if went_back then account.kept_until, account.next_end = 0, now end
  account.last_time = now
  if account.next_end <= now then end_leases(account) end
  return account
end

-- Whether a request that is admitted now counts to the day of the call.
local function is_today()
  return now >= DAY_START and now < DAY_END
end

local function open_accounts()
  if accounts then return end
  local shared = BEFORE_NUMBERS - SHARED_NUMBERS
  accounts = {read_account(KEYS[BEFORE_KEYS + 1], shared + BEFORE_LIMITS)}
  for a = 2, ACCOUNTS do
    accounts[a] = read_account(KEYS[BEFORE_KEYS + a], shared + BEFORE_CLAIMS + COUNTERS + (a - 2) * LIMITS)
  end
  if MOST_USERS > 0 then
    local account = accounts[2]
    -- Its name in the set of users: its key is `<set>:<name>:account`.
    account.users, account.user = USERS, string.sub(account.key, #USERS + 2, -9)
  end
end

-- How long an account is kept after it was written.
local function kept_for()
  return WINDOW_MS + LEASE + 60000
end

local function keep_user(account, until_then)
  call('ZADD', account.users, format('%d', until_then), account.user)
  call('PEXPIRE', account.users, USERS_KEPT_MS)
end

-- Takes the user in among the users of the account. When there are too many, the one that was used longest ago leaves, if its
-- account has expired; its counters are in the ledger. Returns how long none can leave, in ms; nil: the user is in.
local function take_user_in()
  local account = accounts[2]
  if account.kept_until > 0 then return end
  local user = account.user
  if call('ZCARD', USERS) >= MOST_USERS and not call('ZSCORE', USERS, user) then
    local last = call('ZRANGE', USERS, 0, 0, 'WITHSCORES')
    local left = USERS .. ':' .. last[1]
    -- A comparison with the ledger may have kept its account for longer.
    local kept = call('HGET', left .. ':account', 'w')
    local wait = max(last[2], kept and unpack_account(kept).kept_until or 0) - now
    if wait > 0 then return wait end
    call('ZREM', USERS, last[1])
    call('DEL', left .. ':account')
    for i = 2 * PERIODS + 1, 3 * PERIODS do
      call('DEL', left .. string.sub(KEYS[BEFORE_COUNTERS + i], #USERS + 2 + #user))
    end
  end
  keep_user(account, now + kept_for())
end

-- Returns the record of this request: false when there is none, 'x' when the request is over.
local function read_record()
  local record = records[NAME]
  if record == nil then
    record = stored_records[REQUEST]
    if record and record ~= 'x' then record = cmsgpack.unpack(record) end
    records[NAME] = record
  end
  return record
end

local function keep_record(record)
  records[NAME] = record
  kept_records[#kept_records + 1] = REQUEST
end

-- The record of a request that was admitted at `at`. Stored under these names: at, day; tokens held, used and available then;
-- slot; req, the group in which the request was counted, -1 for none; gen, the generation of each counter it was charged to, by
-- the counter's number (`charged`); notes, pairs of a group and the tokens counted in it.
local function new_record(at, held, available, slot, request_group, charged)
  return {
    at = at, day = DAY, held = held, used = 0, avail = available, slot = slot, req = request_group,
    gen = charged, notes = {}
  }
end

-- Sets the tokens that a request has in the windows to `used` in total. Surplus tokens are taken back from the groups that
-- they were added to; tokens that have left the window are not taken back.
local function note_usage(record, used)
  local notes, kept, count = record.notes, {}, 0
  local oldest = floor((now - WINDOW_MS) / GROUP_MS)
  for i = 1, #notes, 2 do
    if notes[i] >= oldest then
      kept[count + 1], kept[count + 2] = min(notes[i], THIS_GROUP), notes[i + 1]
      count = count + 2
    end
  end
  local more = used - record.used
  if more > 0 then
    for a = 1, ACCOUNTS do add_to_window(accounts[a].tokens, more) end
    if kept[count - 1] == THIS_GROUP then
      kept[count] = kept[count] + more
    else
      kept[count + 1], kept[count + 2] = THIS_GROUP, more
    end
  else
    -- The first account comes last: what is kept is what it has.
    for a = ACCOUNTS, 1, -1 do
      local surplus = -more
      for i = 1, count, 2 do
        local taken = take_from_window(accounts[a].tokens, kept[i], min(surplus, kept[i + 1]))
        surplus = surplus - taken
        if a == 1 then kept[i + 1] = kept[i + 1] - taken end
      end
    end
  end
  record.notes, record.used = kept, used
end

-- Adds to counter i the tokens, and the part of them that is held and not used. Both may be negative.
local function charge(i, tokens, held)
  if tokens == 0 and held == 0 then return end
  local counter = counters[i]
  counter.tokens, counter.held, counter.changed = max(0, counter.tokens + tokens), max(0, counter.held + held), true
end

-- The unused tokens of a hold that counter i knows of.
local function unused_on(record, i)
  return record.gen[i] == counters[i].generation and record.held - record.used or 0
end

-- How many tokens of a request counter i has at least, and whether the number is exact, when the request ends:
-- - the counter was charged with the hold at the admission (the generations match): the exact difference counts;
-- - the counter was loaded later, and long enough after the admission for the intent to be in the ledger that was read: only what
--   exceeds the hold counts, because the ledger's figure has at least the hold;
-- - the counter was loaded within LEDGER_LAG of the admission: the ledger may have been read before the intent was written, so the
--   request is charged in full.
-- A counter may have a request too high until it is repaired or loaded anew. It is never too low by more than what the ledger's
-- view of an open intent was behind.
local function charged_on(record, i)
  local counter = counters[i]
  if record.gen[i] == counter.generation then return record.held, true end
  if record.at <= counter.loaded_at and record.at > counter.loaded_at - LEDGER_LAG then return 0, false end
  return record.held, false
end

-- Tokens that still fit in the window of an account, or in those of all.
local function room_of(account)
  return account.token_limit - account.tokens.sum - account.held
end

local function token_room()
  local room = room_of(accounts[1])
  for a = 2, ACCOUNTS do room = min(room, room_of(accounts[a])) end
  return room
end

-- Milliseconds until the window is empty.
local function empty_in(window)
  return window.at and window.at + WINDOW_MS - now or 0
end

-- The reply ends with what is left: of each account requests and tokens, and the milliseconds until all requests and all tokens are
-- left again; the budgets, -1 for one that is not claimed or not known; then the time. What is held counts as used now.
-- What is the same for each request of the section is written into the format once. A tag always has as many numbers.
local function reply_with_headroom(tag, numbers)
  local count = #numbers
  local words = headroom_formats[tag]
  if not words then
    words = {'["' .. tag .. '"' .. string.rep(',%d', count), string.rep(',%d,%d,%d,%d', ACCOUNTS)}
    for i = 1, COUNTERS do words[i + 2] = BUDGETS[i] >= 0 and counters[i] and ',%d' or ',-1' end
    words = table.concat(words) .. format(',%d]', now)
    headroom_formats[tag] = words
  end
  for a = 1, ACCOUNTS do
    local account = accounts[a]
    numbers[count + 1] = max(0, account.request_limit - account.requests.sum)
    numbers[count + 2] = max(0, room_of(account))
    numbers[count + 3] = empty_in(account.requests)
    numbers[count + 4] = account.held > 0 and WINDOW_MS or empty_in(account.tokens)
    count = count + 4
  end
  for i = 1, COUNTERS do
    if BUDGETS[i] >= 0 and counters[i] then
      count = count + 1
      numbers[count] = max(0, BUDGETS[i] - counters[i].tokens)
    end
  end
  return format(words, unpack(numbers))
end

-- The reply with the counters of the instant `at` that a budget needs and Redis does not have; false when it has all.
local function missing_counters(at)
  if all_found then return false end
  for i = 1, COUNTERS do
    if BUDGETS[i] >= 0 and not counters[i] then
      local numbers = {at}
      for j = 1, COUNTERS do numbers[j + 1] = BUDGETS[j] >= 0 and not counters[j] and 1 or 0 end
      return reply('missing', numbers)
    end
  end
  all_found = true
  return false
end

-- Milliseconds until the window has at most `room`.
local function wait_for(window, room)
  local sum = window.sum
  if sum <= room then return 1 end
  for at, amount in string.gmatch(text_of(window), '(%d+):(%d+)') do
    sum = sum - amount
    if sum <= room then return at + WINDOW_MS - now end
  end
  return window.at and sum - window.amount <= room and empty_in(window) or WINDOW_MS
end
