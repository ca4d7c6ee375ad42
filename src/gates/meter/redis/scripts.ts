/**
 * The Meter's verbs as Lua: one script, one round trip, one atomic step each. What a verb costs is mostly the number
 * of commands it calls (`bench/meter.ts`), so everything of an account is one packed field and a verb writes it once.
 *
 * Keys of an account (all under the hash tag of its group, so that a cluster keeps them on one node)
 * - account, a hash: field `w` packs windows, sums and what is due, fields `h<id>` are what running requests hold
 *   (`slot:tokens:until`; `0:tokens:0` once the lease has ended and only the hold is left). One key, so it is lost as a
 *   whole or not at all.
 * - record, a string per request: what it holds and where it was counted; `x` once it is over (a tombstone).
 * - day, month, total, a string each: `tokens:at:generation`, `at` being when it was loaded.
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
 * The last two can count a request too high until the counter is repaired or loaded anew, never too low by more than
 * what the ledger's view of an open intent was behind.
 */

import { common, lapsedMost, prelude } from "./prelude.ts"

const reserve = `
local ASK, SLOT, LEAST = A[11], A[12], A[13]
local rec = read()
if rec == 'x' then return say('ended', {}) end
if rec then
  if rec.day ~= DAY then return say('stale', {rec.at}) end
elseif floor(now / DAYMS) ~= DAY then
  return say('stale', {now})
end
local m = missing()
if m then return m end
open()

local function reserved()
  local numbers = {rec.at, rec.held, rec.avail, rec.slot}
  for i = 1, 3 do numbers[4 + i] = rec.gen[i] == '' and 0 or 1 end
  return answer('reserved', numbers)
end
if rec then return reserved() end

local room = TPM - a[TSUM] - a[OUT]
local avail = room
for i = 1, 3 do
  if BUDGET[i] >= 0 then avail = min(avail, BUDGET[i] - T[i].v) end
end
avail = max(0, avail)
if a[RSUM] >= RPM then
  return answer('refused', {1, RPM, wait(R, RPM - 1), now})
end
if ASK > 0 and room <= 0 then
  -- What is held may be released unused at any moment: alone it is no reason to wait.
  return answer('refused', {2, TPM, wait(T0, TPM - 1 - (a[OUT] < TPM and a[OUT] or 0)), now})
end
if SLOT == 1 and a[TAKEN] >= SLOTS then
  return answer('refused', {3, SLOTS, 1, now})
end
if ASK > 0 then
  for i = 3, 1, -1 do
    if BUDGET[i] >= 0 and T[i].v >= BUDGET[i] then return answer('refused', {3 + i, BUDGET[i], 1, now}) end
  end
end

local held = max(min(ASK, avail), LEAST)
rec = {at = now, day = DAY, held = held, used = 0, avail = avail, slot = SLOT, req = B, gen = {'', '', ''}, notes = {}}
add(R, B, 1)
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
local AT, HELD, AVAIL, SLOT = A[11], A[12], A[13], A[14]
local USED, WANT = A[15], A[16]
local rec = read()
if rec == 'x' then return say('renewed', {0, 1}) end
rec = rec or revived(AT, HELD, AVAIL, SLOT)
if rec.day ~= DAY then return say('stale', {rec.at}) end
open()
release()
note(rec, max(rec.used, USED))

local least = max(rec.held, rec.used)
local room, unknown = TPM - a[TSUM] - a[OUT] - (least - rec.used), false
for i = 1, 3 do
  if BUDGET[i] >= 0 then
    if T[i] then
      room = min(room, BUDGET[i] - T[i].v - (least - known(rec, i)))
    else
      unknown = true
    end
  end
end
local more = min(max(WANT - least, 0), max(room, 0))
local exhausted = least + more < WANT
-- On a counter that is missing nothing is given, but nothing is known to be spent either.
if unknown then more = 0 end
local held = least + more
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
return say('renewed', {held, exhausted and 1 or 0})
`

const settle = `
local AT, HELD, AVAIL, SLOT = A[11], A[12], A[13], A[14]
local USED, KEEPSLOT = A[15], A[16]
local rec = read()
if rec and rec ~= 'x' and rec.day ~= DAY then return say('stale', {rec.at}) end
open()
if rec ~= 'x' then
  rec = rec or revived(AT, HELD, AVAIL, SLOT)
  release()
  note(rec, USED)
  for i = 1, 3 do
    if T[i] then
      local has, exact = known(rec, i)
      charge(i, exact and USED - has or max(0, USED - has))
    end
  end
  if KEEPSLOT == 1 and rec.slot == 1 then lease(1, 0) end
  keep('x')
  save()
end
return answer('left', {})
`

/** The slot of a request that is over: a tombstone beside a field without tokens. */
const renewSlot = `
local rec = read()
if rec and rec ~= 'x' then return say('done', {}) end
open()
-- Known to be over and without a slot: it was freed, or its lease has ended.
if own or not rec then
  release()
  lease(1, 0)
  keep('x')
  save()
end
return say('done', {})
`

const freeSlot = `
if read() ~= 'x' then return say('done', {}) end
open()
if own then
  release()
  save()
end
return say('done', {})
`

const cancel = `
local rec = read()
if rec == 'x' then return say('done', {}) end
if rec then
  if rec.day ~= DAY then return say('stale', {rec.at}) end
  open()
  release()
  note(rec, 0)
  local b = min(rec.req, B)
  if rec.req > B - N and a[R + b % N + 1] > 0 then add(R, b, -1) end
  for i = 1, 3 do
    if T[i] and rec.gen[i] == T[i].g then charge(i, -rec.held) end
  end
  save()
else
  -- The record may be gone before what it held.
  open()
  if own then
    release()
    save()
  end
end
keep('x')
return say('done', {})
`

const peek = `
if floor(now / DAYMS) ~= DAY then return say('stale', {now}) end
read()
local m = missing()
if m then return m end
open()
return answer('left', {})
`

/** As it is, on whatever day the keys say. */
const survey = `
read()
open()
local all, live, lapsed = call('HGETALL', ACCOUNT), 0, {}
for i = 1, #all, 2 do
  if all[i] ~= 'w' then
    if match(all[i + 1], ':0$') then
      if #lapsed < ${lapsedMost} then lapsed[#lapsed + 1] = string.sub(all[i], 2) end
    else
      live = live + 1
    end
  end
end
local numbers = {#all > 0 and a[SEQ] or 0, live}
for i = 1, 3 do numbers[2 + i] = T[i] and T[i].v or -1 end
-- The ids come after the numbers: only these are told by blanks.
return say('surveyed', numbers) .. ';' .. table.concat(lapsed, ';')
`

/**
 * A counter that is repaired is loaded anew: what was charged to the old one is in the ledger's figure. Nobody the store
 * knows held anything, so whoever settles after that was forgotten by it, and is charged as after any load.
 */
const repair = `
local MARK = A[11]
read()
open()
local exists = call('EXISTS', ACCOUNT) == 1
if (exists and a[SEQ] or 0) ~= MARK or call('HLEN', ACCOUNT) > 1 then return say('done', {0}) end
local _, time = clock(now)
for i = 1, 3 do
  if T[i] and A[11 + i] >= 0 then
    fresh(KEYS[2 + i], A[11 + i], now, time, call('PTTL', KEYS[2 + i]))
  end
end
if exists then save() end
return say('done', {1})
`

/** KEYS: counters. Numbers: now or -1, then per counter its tokens and its life in ms. */
const load = `
${common}
local now, time = clock(A[1])
for i, key in ipairs(KEYS) do
  if not counter(call('GET', key)) then fresh(key, A[2 * i], now, time, A[2 * i + 1]) end
end
return say('done', {})
`

/** Ending a request must work on a full server too: it frees more than it writes. */
const mayOverfill = "#!lua flags=allow-oom\n"

export const scripts = {
  reserve: `#!lua\n${prelude}${reserve}`,
  renew: `#!lua\n${prelude}${renew}`,
  settle: mayOverfill + prelude + settle,
  renewSlot: `#!lua\n${prelude}${renewSlot}`,
  freeSlot: mayOverfill + prelude + freeSlot,
  cancel: mayOverfill + prelude + cancel,
  peek: `#!lua\n${prelude}${peek}`,
  survey: `#!lua\n${prelude}${survey}`,
  repair: `#!lua\n${prelude}${repair}`,
  load: `#!lua\n${load}`
} as const
