/**
 * The Meter's verbs as Lua: one script, one round trip, one atomic step each.
 *
 * Keys of an account (all under the hash tag of its group, so that a cluster keeps them on one node)
 * - account, a hash: field `w` packs windows and sums, fields `h<id>` are what running requests hold (`slot:tokens`).
 *   One key, so it is lost as a whole or not at all.
 * - leases, a sorted set: request id by the instant its lease ends.
 * - record, a string per request: what it holds and where it was counted; `x` once it is over (a tombstone).
 * - day, month, total, a hash each: `v` tokens, `at` when it was loaded, `g` the generation of that load.
 *
 * A generation starts with the run id of the Redis process. A counter of another process came out of a snapshot or a
 * replica and may be older than what was decided on it, so it counts as missing and is rebuilt from the ledger.
 *
 * What a total knows of a request, when the request ends
 * - it was charged with the hold when the request was admitted (the generations match): the exact difference;
 * - it was loaded later, and long enough after the admission for the intent to be in the ledger that was read: only
 *   what exceeds the hold, because the ledger's figure already has at least the hold;
 * - it was loaded within `ledgerLag` of the admission: the ledger may have been read before the intent was
 *   written, so the request is charged in full.
 * The last two can count a request too high until the counter is loaded anew, never too low by more than what the
 * ledger's view of an open intent was behind.
 */

/** Width of a window's bucket in milliseconds, and how many make a window: 60 s plus the bucket under way. */
export const bucketMs = 6000
export const bucketCount = 11

/** Longest time, in milliseconds, between an admission and its intent in a ledger that is read for a load. */
export const ledgerLagMs = 10_000

/** Positions of KEYS and ARGV that all verbs share; what a verb takes beside them starts at ARGV[12]. */
const prelude = `
local ACCOUNT, LEASES, RECORD = KEYS[1], KEYS[2], KEYS[3]
local ID, DAY = ARGV[1], tonumber(ARGV[3])
local RPM, TPM, SLOTS = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local BUDGET = {tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])}
local LEASE, KEEP = tonumber(ARGV[10]), tonumber(ARGV[11])
local N, DAYMS, LAG = ${bucketCount}, 86400000, ${ledgerLagMs}
local now = tonumber(ARGV[2])
if now < 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local B = math.floor(now / ${bucketMs})
local a

local function save()
  redis.call('HSET', ACCOUNT, 'w', cmsgpack.pack(a))
  local ttl = N * ${bucketMs} + 2 * LEASE
  redis.call('PEXPIRE', ACCOUNT, ttl)
  redis.call('PEXPIRE', LEASES, ttl)
end

local function release(id)
  local h = redis.call('HGET', ACCOUNT, 'h' .. id)
  if not h then return end
  local slot, out = string.match(h, '^(%d):(%d+)$')
  a.slots = a.slots - tonumber(slot)
  a.out = a.out - tonumber(out)
  redis.call('HDEL', ACCOUNT, 'h' .. id)
  redis.call('ZREM', LEASES, id)
end

local function lease(slot, out)
  a.slots = a.slots + slot
  a.out = a.out + out
  redis.call('HSET', ACCOUNT, 'h' .. ID, string.format('%d:%.0f', slot, out))
  redis.call('ZADD', LEASES, now + LEASE, ID)
end

local function sum(window)
  local s = 0
  for i = 1, N do s = s + window[i] end
  return s
end

local function zeros()
  local z = {}
  for i = 1, N do z[i] = 0 end
  return z
end

-- The windows as they are now. A clock that went back (failover) makes all of the window as recent as can be.
local function open()
  local blob = redis.call('HGET', ACCOUNT, 'w')
  if not blob then
    a = {b = B, out = 0, slots = 0, r = zeros(), t = zeros()}
    return
  end
  a = cmsgpack.unpack(blob)
  if B > a.b then
    for i = math.max(a.b + 1, B - N + 1), B do
      a.r[i % N + 1] = 0
      a.t[i % N + 1] = 0
    end
  elseif B < a.b then
    local r, t = sum(a.r), sum(a.t)
    a.r, a.t = zeros(), zeros()
    a.r[B % N + 1], a.t[B % N + 1] = r, t
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', LEASES, '(' .. string.format('%.0f', now + LEASE), '+inf')) do
      redis.call('ZADD', LEASES, now + LEASE, id)
    end
  end
  a.b = B
  local ended = redis.call('ZRANGEBYSCORE', LEASES, '-inf', now)
  for _, id in ipairs(ended) do release(id) end
  if #ended > 0 then save() end
end

local function record()
  local text = redis.call('GET', RECORD)
  if not text or text == 'x' then return text end
  return cmsgpack.unpack(text)
end

local function keep(rec)
  redis.call('SET', RECORD, rec == 'x' and 'x' or cmsgpack.pack(rec), 'PX', KEEP)
end

-- A request the store no longer knows, from what its owner says of it.
local function revived(at, held, avail, slot)
  return {at = at, day = DAY, held = held, used = 0, avail = avail, slot = slot, req = -1, gen = {'', '', ''}, notes = {}}
end

-- Moves the tokens a request has used in the windows to n in all. Too many are taken back where they were noted
-- first; what has left the window cannot be.
local function note(rec, n)
  local notes, fresh = rec.notes, {}
  for i = 1, #notes, 2 do
    if notes[i] > B - N then
      fresh[#fresh + 1] = math.min(notes[i], B)
      fresh[#fresh + 1] = notes[i + 1]
    end
  end
  local more = n - rec.used
  if more > 0 then
    a.t[B % N + 1] = a.t[B % N + 1] + more
    fresh[#fresh + 1] = B
    fresh[#fresh + 1] = more
  else
    for i = 1, #fresh, 2 do
      local k = math.min(-more, fresh[i + 1], a.t[fresh[i] % N + 1])
      fresh[i + 1] = fresh[i + 1] - k
      a.t[fresh[i] % N + 1] = a.t[fresh[i] % N + 1] - k
      more = more + k
    end
  end
  rec.notes, rec.used = fresh, n
end

-- The counters that exist in this Redis process. The run id is only asked for when there is one to compare.
local T = {false, false, false}
local run
local function process()
  run = run or string.sub(string.match(redis.call('INFO', 'server'), 'run_id:(%x+)'), 1, 12)
  return run
end
local function counter(key)
  local f = redis.call('HMGET', key, 'v', 'g', 'at')
  if not f[1] or string.sub(f[2], 1, 12) ~= process() then return false end
  return {v = tonumber(f[1]), g = f[2], at = tonumber(f[3])}
end
local function totals()
  for i = 1, 3 do T[i] = counter(KEYS[3 + i]) end
end
local function charge(i, tokens)
  if tokens == 0 then return end
  tokens = math.max(tokens, -T[i].v)
  T[i].v = T[i].v + tokens
  redis.call('HINCRBY', KEYS[3 + i], 'v', string.format('%.0f', tokens))
end

-- How much of a request counter i has for certain.
local function known(rec, i)
  if rec.gen[i] == T[i].g then return rec.held, true end
  if rec.at <= T[i].at and rec.at > T[i].at - LAG then return 0, false end
  return rec.held, false
end

local function left(i)
  if BUDGET[i] < 0 or not T[i] then return -1 end
  return math.max(0, BUDGET[i] - T[i].v)
end
local function answer(tag, numbers)
  numbers[#numbers + 1] = math.max(0, RPM - sum(a.r))
  numbers[#numbers + 1] = math.max(0, TPM - sum(a.t) - a.out)
  for i = 1, 3 do numbers[#numbers + 1] = left(i) end
  return {tag, numbers}
end
local function missing()
  local m, any = {now, 0, 0, 0}, false
  for i = 1, 3 do
    if BUDGET[i] >= 0 and not T[i] then m[i + 1], any = 1, true end
  end
  return any and {'missing', m}
end

-- Milliseconds until what is left of a window is at most room.
local function wait(window, room)
  local s = sum(window)
  if s <= room then return 1 end
  for i = B - N + 1, B do
    s = s - window[i % N + 1]
    if s <= room then return (i + N) * ${bucketMs} - now end
  end
  return N * ${bucketMs}
end
`

const reserve = `
local ASK, SLOT = tonumber(ARGV[12]), tonumber(ARGV[13])
local rec = record()
if rec == 'x' then return {'ended', {}} end
if rec then
  if rec.day ~= DAY then return {'stale', {rec.at}} end
elseif math.floor(now / DAYMS) ~= DAY then
  return {'stale', {now}}
end
totals()
local m = missing()
if m then return m end
open()

local function reserved()
  local numbers = {rec.at, rec.held, rec.avail, rec.slot}
  for i = 1, 3 do numbers[4 + i] = rec.gen[i] == '' and 0 or 1 end
  return answer('reserved', numbers)
end
if rec then return reserved() end

local avail = TPM - sum(a.t) - a.out
for i = 1, 3 do
  if BUDGET[i] >= 0 then avail = math.min(avail, BUDGET[i] - T[i].v) end
end
avail = math.max(0, avail)
if sum(a.r) >= RPM then
  return answer('refused', {1, RPM, wait(a.r, RPM - 1), now})
end
if ASK > 0 and TPM - sum(a.t) - a.out <= 0 then
  -- What is held may be released unused at any moment: alone it is no reason to wait.
  return answer('refused', {2, TPM, wait(a.t, TPM - 1 - (a.out < TPM and a.out or 0)), now})
end
if SLOT == 1 and a.slots >= SLOTS then
  return answer('refused', {3, SLOTS, 1, now})
end
if ASK > 0 then
  for i = 3, 1, -1 do
    if BUDGET[i] >= 0 and T[i].v >= BUDGET[i] then return answer('refused', {3 + i, BUDGET[i], 1, now}) end
  end
end

local held = math.min(ASK, avail)
rec = {at = now, day = DAY, held = held, used = 0, avail = avail, slot = SLOT, req = B, gen = {'', '', ''}, notes = {}}
a.r[B % N + 1] = a.r[B % N + 1] + 1
if SLOT == 1 or held > 0 then lease(SLOT, held) end
for i = 1, 3 do
  if T[i] then
    charge(i, held)
    rec.gen[i] = T[i].g
  end
end
keep(rec)
save()
return reserved()
`

const renew = `
local AT, HELD, AVAIL, SLOT = tonumber(ARGV[12]), tonumber(ARGV[13]), tonumber(ARGV[14]), tonumber(ARGV[15])
local USED, WANT = tonumber(ARGV[16]), tonumber(ARGV[17])
local rec = record()
if rec == 'x' then return {'renewed', {0, 1}} end
rec = rec or revived(AT, HELD, AVAIL, SLOT)
if rec.day ~= DAY then return {'stale', {rec.at}} end
totals()
open()
release(ID)
note(rec, math.max(rec.used, USED))

local floor = math.max(rec.held, rec.used)
local room, unknown = TPM - sum(a.t) - a.out - (floor - rec.used), false
for i = 1, 3 do
  if BUDGET[i] >= 0 then
    if T[i] then
      room = math.min(room, BUDGET[i] - T[i].v - (floor - known(rec, i)))
    else
      unknown = true
    end
  end
end
local more = math.min(math.max(WANT - floor, 0), math.max(room, 0))
local exhausted = floor + more < WANT
-- On a counter that is missing nothing is given, but nothing is known to be spent either.
if unknown then more = 0 end
local held = floor + more
for i = 1, 3 do
  if T[i] then
    local has = known(rec, i)
    charge(i, held - has)
    if has == 0 then rec.gen[i] = T[i].g end
  end
end
rec.held = held
if rec.slot == 1 or held > rec.used then lease(rec.slot, held - rec.used) end
keep(rec)
save()
return {'renewed', {held, exhausted and 1 or 0}}
`

const settle = `
local AT, HELD, AVAIL, SLOT = tonumber(ARGV[12]), tonumber(ARGV[13]), tonumber(ARGV[14]), tonumber(ARGV[15])
local USED = tonumber(ARGV[16])
local rec = record()
if rec and rec ~= 'x' and rec.day ~= DAY then return {'stale', {rec.at}} end
totals()
open()
if rec ~= 'x' then
  rec = rec or revived(AT, HELD, AVAIL, SLOT)
  release(ID)
  note(rec, USED)
  for i = 1, 3 do
    if T[i] then
      local has, exact = known(rec, i)
      charge(i, exact and USED - has or math.max(0, USED - has))
    end
  end
  keep('x')
  save()
end
return answer('left', {})
`

const cancel = `
local rec = record()
if rec == 'x' then return {'done', {}} end
if rec then
  if rec.day ~= DAY then return {'stale', {rec.at}} end
  totals()
  open()
  release(ID)
  note(rec, 0)
  local b = math.min(rec.req, B)
  if rec.req > B - N and a.r[b % N + 1] > 0 then a.r[b % N + 1] = a.r[b % N + 1] - 1 end
  for i = 1, 3 do
    if T[i] and rec.gen[i] == T[i].g then charge(i, -rec.held) end
  end
  save()
end
keep('x')
return {'done', {}}
`

const peek = `
if math.floor(now / DAYMS) ~= DAY then return {'stale', {now}} end
totals()
local m = missing()
if m then return m end
open()
return answer('left', {})
`

/** KEYS: counters. ARGV: now or -1, then per counter its tokens and its life in ms. */
const load = `
local run = string.sub(string.match(redis.call('INFO', 'server'), 'run_id:(%x+)'), 1, 12)
local time = redis.call('TIME')
local now = tonumber(ARGV[1])
if now < 0 then now = time[1] * 1000 + math.floor(time[2] / 1000) end
for i, key in ipairs(KEYS) do
  local g = redis.call('HGET', key, 'g')
  if not g or string.sub(g, 1, 12) ~= run then
    redis.call('HSET', key, 'v', ARGV[2 * i], 'at', string.format('%.0f', now), 'g', run .. ':' .. time[1] .. ':' .. time[2])
    redis.call('PEXPIRE', key, ARGV[2 * i + 1])
  end
end
return {'done', {}}
`

/** Ending a request must work on a full server too: it frees more than it writes. */
const mayOverfill = "#!lua flags=allow-oom\n"

export const scripts = {
  reserve: `#!lua\n${prelude}${reserve}`,
  renew: `#!lua\n${prelude}${renew}`,
  settle: mayOverfill + prelude + settle,
  cancel: mayOverfill + prelude + cancel,
  peek: `#!lua\n${prelude}${peek}`,
  load: `#!lua\n${load}`
} as const
