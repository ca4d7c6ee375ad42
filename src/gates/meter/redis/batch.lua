-- The end of each script of an account: runs `operate` for each request of the call, and replies with an array of their replies.
--
-- A section is decided as a whole in memory and then written, so its requests share what is read and written of the account.
local replies = {}

local function begin_section(before_keys, before_numbers)
  local id_from
  REQUESTS_HERE, id_from, OWN_NUMBERS = unpack(NUMBERS, before_numbers + 1, before_numbers + SECTION_NUMBERS)
  BEFORE_COUNTERS, BEFORE_RECORDS = before_keys + 1, before_keys + 1 + COUNTERS
  BEFORE_NUMBERS = before_numbers + SECTION_NUMBERS + SHARED_NUMBERS
  ACCOUNT = KEYS[before_keys + 1]
  names = {}
  for i = 1, REQUESTS_HERE do names[i] = 'h' .. string.sub(KEYS[BEFORE_RECORDS + i], id_from) end
end

local function read_section()
  local shared = BEFORE_NUMBERS - SHARED_NUMBERS
  local given_now
  given_now, DAY, REQUEST_LIMIT, TOKEN_LIMIT, SLOT_LIMIT, LEASE, KEEP_RECORD, LEDGER_LAG = unpack(NUMBERS, shared + 1, shared + 8)
  BUDGETS = {unpack(NUMBERS, shared + 9, shared + SHARED_NUMBERS)}
  now = clock(given_now)
  THIS_GROUP = floor(now / GROUP_MS)
  local stored = call('MGET', unpack(KEYS, BEFORE_COUNTERS + 1, BEFORE_RECORDS + REQUESTS_HERE))
  counters, generations, stored_records, records, kept_records = {}, {}, {}, {}, {}
  for i = 1, COUNTERS do
    counters[i] = parse_counter(stored[i])
    if counters[i] then generations[i] = counters[i].generation end
  end
  for i = 1, REQUESTS_HERE do stored_records[i] = stored[COUNTERS + i] end
  account, account_changed, held_by, changed_fields = nil, false, {}, {}
  headroom_formats, all_found = {}, false
end

local function decide(first_reply)
  read_section()
  for i = 1, REQUESTS_HERE do
    REQUEST, NAME, held_by_request, new_field = i, names[i], nil, nil
    replies[first_reply + i] = operate()
    if new_field ~= nil then
      held_by[NAME] = new_field
      changed_fields[#changed_fields + 1] = NAME
    end
  end
end

local function write_account()
  local life = WINDOW_MS + LEASE
  local extend = account.kept_until < now + life
  if extend then account.kept_until = now + life + 60000 end
  local set, deleted = {'w', pack_account()}, {}
  for i = 1, #changed_fields do
    local name = changed_fields[i]
    if held_by[name] then
      set[#set + 1] = name
      set[#set + 1] = held_by[name]
    else
      deleted[#deleted + 1] = name
    end
  end
  if #deleted > 0 then call('HDEL', ACCOUNT, unpack(deleted)) end
  call('HSET', ACCOUNT, unpack(set))
  if extend then call('PEXPIRE', ACCOUNT, life + 60000) end
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
  if account_changed then write_account() end
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
return '[' .. table.concat(replies, ',') .. ']'
