-- What all functions of an account's scripts share: the arguments of a call and what is known of the account. It follows
-- start.lua. scripts.ts puts the functions that come after it into one function, `main`. scripts.ts describes how an account,
-- a record and a counter are stored.
--
-- A call has sections. All requests of a section are of one account, and share all numbers but those of the operation.
--
-- KEYS     for each section: the account; six counters: day, month and all time of the account, then of its group; then the
--          record of each request, which ends with the id of the request
-- Numbers  for each section: how many requests it has; where the id begins in the key of a record; how many numbers of its
--          own a request has; then those that the requests share: now in ms or -1; the UTC day; limits: requests, tokens,
--          slots; how long a lease lasts (ms); how long a record is kept (ms); how long after its admission a request may be
--          missing in the ledger (ms); the budgets of the six counters, -1 for none; then the own numbers of each request
local COUNTERS = 6
local SECTION_NUMBERS, SHARED_NUMBERS = 3, 14
local DAY_MS, NEVER = 86400000, 9007199254740991
local pack_group, unpack_group = struct.pack, struct.unpack

-- Of the section: set by `begin_section`.
local ACCOUNT, BEFORE_COUNTERS, BEFORE_RECORDS, BEFORE_NUMBERS, REQUESTS_HERE, OWN_NUMBERS
local now, DAY, REQUEST_LIMIT, TOKEN_LIMIT, SLOT_LIMIT, LEASE, KEEP_RECORD, LEDGER_LAG, BUDGETS, THIS_GROUP
-- `h<id>` of each request: the field of the account, and the name of the request in tables here.
local names

-- Of the request whose turn it is: set by `decide`. Its place among the requests of the section, and its name.
local REQUEST, NAME

-- In memory an account is a table: last_time, time of the last operation; held, tokens held but not used; taken, slots taken;
-- next_end, an instant before which no lease ends; kept_until, until when the key is kept; writes, how often it was written;
-- requests and tokens, the two windows. `pack_account` and `unpack_account` say how it is stored.
--
-- A window is a string of groups, the oldest first. A group has all entries of the same GROUP_MS, in GROUP_BYTES bytes: the
-- time of its last entry (ms) and the sum of its entries. A group leaves the window WINDOW_MS after its last entry.
--
-- In memory a window is a table. Every request changes the last group, so that is kept apart: `at` and `amount`, `at` is nil
-- when the window is empty. The others are the bytes `from` to `to` of `text`. `sum` is the sum of all groups. The reason:
-- Lua in Redis hashes every byte of a string that it makes, 1.2 us for a KB, and a full window has 1.6 KB.

-- What is known of the section, as it will be when it is written: nothing is written before all its requests are decided.
-- `account` is nil until an operation needs it. `held_by`: what the field of each request has. `records`: each record that was read.
local account, account_changed, counters, stored_records, records, kept_records, held_by, changed_fields
-- The format of each reply with what is left, by its tag. `all_found`: no budget lacks its counter.
local headroom_formats, all_found
-- The generation of each counter that exists, by its number. New records share it.
local generations
-- What the field of this request has now (`held_by_request`), and its new value: nil does not change it, false removes it.
local held_by_request, new_field

