-- What all functions of an account's scripts share: the arguments of a call and what is known of the accounts. It follows
-- start.lua. scripts.ts puts the functions that come after it into one function, `main`. scripts.ts describes how an account,
-- a record and a counter are stored.
--
-- A call has sections. All requests of a section are of one account, and share all numbers but those of the operation. They may
-- be of one user of the account, and of one model for which it has limits. Each of these has an account of the same form: then each
-- operation is done on all.
--
-- KEYS     for each section: the account, that of the user, and that of the model; with one of these, the set of all users; counters:
--          day, week, month and all time of the account, then of its group, then of the user, then of the model; then the record of
--          each request, which ends with the id of the request
-- Numbers  for each section: how many requests it has; where the id begins in the key of a record; how many numbers of its
--          own a request has; how many accounts; then those that the requests share: now in ms or -1; the day, its
--          start and its end; 1 when its week ends after its month; extra budgets of the account and of its group: tokens, what is
--          used in all when they are used, their end; limits: requests, tokens, slots; how long a lease lasts (ms); how long a record is kept (ms); how long after its
--          admission a request may be missing in the ledger (ms); the budgets of the counters, -1 for none; with other accounts, the
--          limits of each, and how many users there may be, 0 without one; then the own numbers of each request
-- Claims   a refusal says the number of the claim: for each account requests, tokens, slots (LIMITS); the counters; users
local SECTION_NUMBERS = 4
local ACCOUNTS, COUNTERS, SHARED_NUMBERS, USERS, MOST_USERS
local NEVER = 9007199254740991

-- Of the section: set by `begin_section`.
local BEFORE_KEYS, BEFORE_COUNTERS, BEFORE_RECORDS, BEFORE_NUMBERS, REQUESTS_HERE, OWN_NUMBERS
local now, DAY, DAY_START, DAY_END, WEEK_IS_LATER, LEASE, KEEP_RECORD, LEDGER_LAG, BUDGETS, THIS_GROUP
-- `h<id>` of each request: the field of the account, and the name of the request in tables here.
local names

-- Of the request whose turn it is: set by `decide`. Its place among the requests of the section, and its name.
local REQUEST, NAME

-- In memory an account is a table: key, its name in Redis; limits, those of requests, tokens and slots; fields, what the field of
-- each request has, false for none; changed and changed_fields, whether and where it differs from Redis; last_time, time of the last operation; held, tokens held but not used; taken, slots taken;
-- next_end, an instant before which no lease ends; kept_until, until when the key is kept; writes, how often it was written;
-- requests and tokens, the two windows. `pack_account` and `unpack_account` say how it is stored.
--
-- A window has groups, the oldest first. A group has all entries of the same GROUP_MS: the time of its last entry (ms) and the sum of its
-- entries. A group leaves the window WINDOW_MS after its last entry.
--
-- Every request changes the last group, so that is among the numbers of the account: `at` and `amount`; `at` is false or nil when the
-- window is empty. The others are a field of the account, `at:amount ` for each. Most requests need no more of it than `oldest`,
-- the time of the first one, and `sum`, of all groups; so `text` is read when it is needed.

-- What is known of the section, as it will be when it is written: nothing is written before all its requests are decided.
-- `accounts` is nil until an operation needs it: the account, then those of the user and the model. `records`: each record that was read.
local accounts, counters, stored_records, records, kept_records
-- The accounts of all sections, by key: as they will be when the call ends.
local opened = {}
-- The format of each reply with what is left, by its tag. `all_found`: no budget lacks its counter.
local headroom_formats, all_found
-- The generation of each counter that exists, by its number. New records share it.
local generations

