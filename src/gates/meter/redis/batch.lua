-- The end of each script of an account: runs `operate` for each request of the call, and replies with an array of their replies.
--
-- A section is decided as a whole in memory and then written, so its requests share what is read and written of the account. Sections
-- of users of one account share that account: accounts are written at the end of the call.
local replies = {}

local function begin_section(before_keys, before_numbers)
  local id_from
  REQUESTS_HERE, id_from, OWN_NUMBERS, ACCOUNTS = unpack(NUMBERS, before_numbers + 1, before_numbers + SECTION_NUMBERS)
  COUNTERS = (ACCOUNTS + 1) * PERIODS
  SHARED_NUMBERS, BEFORE_COUNTERS = BEFORE_CLAIMS + COUNTERS, before_keys + 1
  if ACCOUNTS > 1 then
    SHARED_NUMBERS, BEFORE_COUNTERS = SHARED_NUMBERS + (ACCOUNTS - 1) * LIMITS + 1, before_keys + ACCOUNTS + 1
  end
  BEFORE_KEYS, BEFORE_RECORDS = before_keys, BEFORE_COUNTERS + COUNTERS
  BEFORE_NUMBERS = before_numbers + SECTION_NUMBERS + SHARED_NUMBERS
  USERS, MOST_USERS = KEYS[BEFORE_COUNTERS], ACCOUNTS > 1 and NUMBERS[BEFORE_NUMBERS] or 0
  names = {}
  for i = 1, REQUESTS_HERE do names[i] = 'h' .. string.sub(KEYS[BEFORE_RECORDS + i], id_from) end
end

-- An extra budget raises the budgets of its owner by what was left of it when their periods began. The total has what was used
-- before, because each request is in both counters. Returns whether there is one.
local function raise_budgets(before, before_extra)
  local total = counters[before + PERIODS]
  local tokens, up_to, ends = unpack(NUMBERS, before_extra + 1, before_extra + 3)
  if now >= ends or not total then return false end
  for i = before + 1, before + PERIODS do
    local counter = counters[i]
    if BUDGETS[i] >= 0 and counter then
      BUDGETS[i] = min(NEVER, BUDGETS[i] + max(0, min(tokens, up_to - total.tokens + counter.tokens)))
    end
  end
  return true
end

-- Returns whether a request of the section may change the budgets: one that ends is charged differently to counters that were
-- loaded at different times, and their difference is what an extra budget adds.
local function read_budgets()
  local shared = BEFORE_NUMBERS - SHARED_NUMBERS
  BUDGETS = {unpack(NUMBERS, shared + BEFORE_CLAIMS + 1, shared + BEFORE_CLAIMS + COUNTERS)}
  local of_account = raise_budgets(0, shared + 5)
  return raise_budgets(PERIODS, shared + 8) or of_account
end

local function read_section()
  local shared = BEFORE_NUMBERS - SHARED_NUMBERS
  DAY, DAY_START, DAY_END, WEEK_IS_LATER = unpack(NUMBERS, shared + 2, shared + 5)
  LEASE, KEEP_RECORD, LEDGER_LAG = unpack(NUMBERS, shared + BEFORE_LIMITS + 4, shared + BEFORE_CLAIMS)
  now = clock(NUMBERS[shared + 1])
  THIS_GROUP = floor(now / GROUP_MS)
  local stored = call('MGET', unpack(KEYS, BEFORE_COUNTERS + 1, BEFORE_RECORDS + REQUESTS_HERE))
  counters, generations, stored_records, records, kept_records = {}, {}, {}, {}, {}
  for i = 1, COUNTERS do
    counters[i] = parse_counter(stored[i])
    if counters[i] then generations[i] = counters[i].generation end
  end
  for i = 1, REQUESTS_HERE do stored_records[i] = stored[COUNTERS + i] end
  accounts = nil
  headroom_formats, all_found = {}, false
end

local function decide(first_reply)
  read_section()
  local may_change = true
  for i = 1, REQUESTS_HERE do
    REQUEST, NAME = i, names[i]
    if may_change then may_change = read_budgets() end
    replies[first_reply + i] = operate()
  end
end

local function write_account(account)
  local extend = account.kept_until < now + WINDOW_MS + LEASE
  if extend then account.kept_until = now + kept_for() end
  local set, deleted = {'w', pack_account(account)}, {}
  for _, window in ipairs({account.requests, account.tokens}) do
    if window.changed then
      set[#set + 1] = window.field
      set[#set + 1] = window.text
    end
  end
  for name in pairs(account.changed_fields) do
    if account.fields[name] then
      set[#set + 1] = name
      set[#set + 1] = account.fields[name]
    else
      deleted[#deleted + 1] = name
    end
  end
  if #deleted > 0 then call('HDEL', account.key, unpack(deleted)) end
  call('HSET', account.key, unpack(set))
  if extend then
    call('PEXPIRE', account.key, kept_for())
    if account.user then keep_user(account, account.kept_until) end
  end
end

local function write_section()
  for i = 1, COUNTERS do
    local counter = counters[i]
    if counter and counter.changed then
      local text = format('%d:%d:%d:%s', counter.tokens, counter.held, counter.loaded_at, counter.generation)
      call('SET', KEYS[BEFORE_COUNTERS + i], text, 'KEEPTTL')
    end
  end
  -- As text: Redis takes 0.2 us to make one of a number, for each command.
  local life = format('%d', KEEP_RECORD)
  for i = 1, #kept_records do
    local request = kept_records[i]
    local record = records[names[request]]
    call('SET', KEYS[BEFORE_RECORDS + request], record == 'x' and 'x' or cmsgpack.pack(record), 'PX', life)
  end
end

local before_keys, before_numbers, reply_count = 0, 0, 0
while before_keys < #KEYS do
  begin_section(before_keys, before_numbers)
  decide(reply_count)
  write_section()
  reply_count = reply_count + REQUESTS_HERE
  before_keys = BEFORE_RECORDS + REQUESTS_HERE
  before_numbers = BEFORE_NUMBERS + REQUESTS_HERE * OWN_NUMBERS
end
for _, account in pairs(opened) do
  if account.changed then write_account(account) end
end
return '[' .. table.concat(replies, ',') .. ']'
