/** The Lua that all scripts begin with: the packed account, the record, the counters. `scripts.ts` says what is what. */

/** Width of a window's bucket in milliseconds, and how many make a window: 60 s plus the bucket under way. */
export const bucketMs = 6000
export const bucketCount = 11

/** Longest time, in milliseconds, between an admission and its intent in a ledger that is read for a load. */
export const ledgerLagMs = 10_000

/** How many ids a survey names at once; the others have their turn when these are over. */
export const lapsedMost = 200

/**
 * How a script is spoken to and answers, and how counters are read and written.
 *
 * ARGV: the id of the request, all numbers in one word with blanks between them, the run id. The answer is one word too: a
 * tag, then numbers. Client libraries spend several objects on every word of a command and of a reply, and there were
 * two dozen and a dozen (`bench/meter.ts`).
 */
export const common = `
local call, max, min, floor, match, format = redis.call, math.max, math.min, math.floor, string.match, string.format

local ID, RUN, A, words = ARGV[1], ARGV[3], {}, 0
-- A word that is no number leaves its place empty, which no verb survives; the others must not move up.
for word in string.gmatch(ARGV[2], '%S+') do
  words = words + 1
  A[words] = tonumber(word)
end

local function say(tag, numbers)
  return tag .. format(string.rep(' %.0f', #numbers), unpack(numbers))
end

local function clock(given)
  local time = call('TIME')
  if given >= 0 then return given, time end
  return time[1] * 1000 + floor(time[2] / 1000), time
end

-- The gateway knows the run id of the process it is connected to, and says so. When it does not,
-- Redis is asked, but only if there is a counter to compare: INFO is the dearest command here.
local run = RUN ~= '' and string.sub(RUN, 1, 12)
local function process()
  run = run or string.sub(match(call('INFO', 'server'), 'run_id:(%x+)'), 1, 12)
  return run
end

-- A counter that exists in this Redis process.
local function counter(text)
  if not text then return false end
  local v, at, g, of = match(text, '^(%d+):(%d+):((%x+):.*)$')
  return of == process() and {v = tonumber(v), at = tonumber(at), g = g}
end

local function fresh(key, tokens, now, time, life)
  call('SET', key, format('%.0f:%.0f:%s:%s:%s', tokens, now, process(), time[1], time[2]), 'PX', life)
end
`

/** Positions of the KEYS and numbers that all verbs share; what a verb takes beside them starts at A[11]. */
export const prelude = `
${common}
local ACCOUNT, RECORD = KEYS[1], KEYS[2]
local now, DAY = clock(A[1]), A[2]
local RPM, TPM, SLOTS = A[3], A[4], A[5]
local BUDGET = {A[6], A[7], A[8]}
local LEASE, KEEP = A[9], A[10]
local N, DAYMS, LAG, NEVER = ${bucketCount}, 86400000, ${ledgerLagMs}, 9007199254740991
local B = floor(now / ${bucketMs})

-- The account: bucket of the last verb, tokens held but not used, slots taken, an instant before which no lease
-- ends, until when the key is kept, how often it was written, the sums of the windows, the windows.
local BUCKET, OUT, TAKEN, DUE, KEPT, SEQ, RSUM, TSUM, R, T0 = 1, 2, 3, 4, 5, 6, 7, 8, 8, 8 + N
local a
-- What the account has of this request, and what it shall have: nil leaves it, false removes it.
local own, field

local function add(window, bucket, n)
  local i, s = window + bucket % N + 1, window == R and RSUM or TSUM
  a[i], a[s] = a[i] + n, a[s] + n
end

local function save()
  local life = N * ${bucketMs} + LEASE
  local keep = a[KEPT] < now + life
  if keep then a[KEPT] = now + life + 60000 end
  a[SEQ] = a[SEQ] + 1
  if field then
    call('HSET', ACCOUNT, 'w', cmsgpack.pack(a), 'h' .. ID, field)
  else
    if field == false then call('HDEL', ACCOUNT, 'h' .. ID) end
    call('HSET', ACCOUNT, 'w', cmsgpack.pack(a))
  end
  if keep then call('PEXPIRE', ACCOUNT, life + 60000) end
end

local function release()
  if not own then return end
  local slot, out = match(own, '^(%d):(%d+)')
  a[TAKEN], a[OUT] = a[TAKEN] - slot, a[OUT] - out
  own, field = false, false
end

local function lease(slot, out)
  local ends = now + LEASE
  a[TAKEN], a[OUT], a[DUE] = a[TAKEN] + slot, a[OUT] + out, min(a[DUE], ends)
  field = format('%d:%.0f:%.0f', slot, out, ends)
end

-- Ends the leases that are over: their slots are free, what they hold stays held, with 0 for an end. No lease is longer
-- than one given now: a clock may have gone back.
local function sweep()
  local due, out, taken, all = NEVER, 0, 0, call('HGETALL', ACCOUNT)
  for i = 1, #all, 2 do
    local slot, tokens, ends = match(all[i + 1], '^(%d):(%d+):(%d+)$')
    if slot and all[i] ~= 'w' then
      ends = tonumber(ends)
      if ends <= now then
        local lapsed = tokens ~= '0' and format('0:%s:0', tokens)
        if not lapsed then
          call('HDEL', ACCOUNT, all[i])
        elseif ends > 0 then
          call('HSET', ACCOUNT, all[i], lapsed)
        end
        if all[i] == 'h' .. ID then own = lapsed end
        out = out + tokens
      else
        if ends > now + LEASE then
          ends = now + LEASE
          call('HSET', ACCOUNT, all[i], format('%s:%s:%.0f', slot, tokens, ends))
        end
        due, out, taken = min(due, ends), out + tokens, taken + slot
      end
    end
  end
  a[DUE], a[OUT], a[TAKEN] = due, out, taken
  save()
end

-- The windows as they are now. A clock that went back (failover) makes all of the window as recent as can be.
local function open()
  local f = call('HMGET', ACCOUNT, 'w', 'h' .. ID)
  own = f[2]
  if not f[1] then
    a = {B, 0, 0, NEVER, 0, now, 0, 0}
    for i = R + 1, R + 2 * N do a[i] = 0 end
    return
  end
  a = cmsgpack.unpack(f[1])
  if B > a[BUCKET] then
    for i = max(a[BUCKET] + 1, B - N + 1), B do
      add(R, i, -a[R + i % N + 1])
      add(T0, i, -a[T0 + i % N + 1])
    end
  elseif B < a[BUCKET] then
    local r, t = a[RSUM], a[TSUM]
    for i = R + 1, R + 2 * N do a[i] = 0 end
    a[RSUM], a[TSUM], a[KEPT], a[DUE] = 0, 0, 0, now
    add(R, B, r)
    add(T0, B, t)
  end
  a[BUCKET] = B
  if a[DUE] <= now then sweep() end
end

-- The record of the request and the counters there are, in one go.
local T = {false, false, false}
local function read()
  local got = call('MGET', RECORD, KEYS[3], KEYS[4], KEYS[5])
  for i = 1, 3 do T[i] = counter(got[i + 1]) end
  if not got[1] or got[1] == 'x' then return got[1] end
  return cmsgpack.unpack(got[1])
end

local function keep(rec)
  call('SET', RECORD, rec == 'x' and 'x' or cmsgpack.pack(rec), 'PX', KEEP)
end

-- A request the store no longer knows, from what its owner says of it.
local function revived(at, held, avail, slot)
  return {at = at, day = DAY, held = held, used = 0, avail = avail, slot = slot, req = -1, gen = {'', '', ''}, notes = {}}
end

-- Moves the tokens a request has used in the windows to n in all. Too many are taken back where they were noted
-- first; what has left the window cannot be.
local function note(rec, n)
  local notes, kept = rec.notes, {}
  for i = 1, #notes, 2 do
    if notes[i] > B - N then
      kept[#kept + 1] = min(notes[i], B)
      kept[#kept + 1] = notes[i + 1]
    end
  end
  local more = n - rec.used
  if more > 0 then
    add(T0, B, more)
    kept[#kept + 1] = B
    kept[#kept + 1] = more
  else
    for i = 1, #kept, 2 do
      local k = min(-more, kept[i + 1], a[T0 + kept[i] % N + 1])
      kept[i + 1] = kept[i + 1] - k
      add(T0, kept[i], -k)
      more = more + k
    end
  end
  rec.notes, rec.used = kept, n
end

local function charge(i, tokens)
  if tokens == 0 then return end
  local t = T[i]
  t.v = max(0, t.v + tokens)
  call('SET', KEYS[2 + i], format('%.0f:%.0f:%s', t.v, t.at, t.g), 'KEEPTTL')
end

-- How much of a request counter i has for certain.
local function known(rec, i)
  if rec.gen[i] == T[i].g then return rec.held, true end
  if rec.at <= T[i].at and rec.at > T[i].at - LAG then return 0, false end
  return rec.held, false
end

local function answer(tag, numbers)
  local n = #numbers
  numbers[n + 1] = max(0, RPM - a[RSUM])
  numbers[n + 2] = max(0, TPM - a[TSUM] - a[OUT])
  for i = 1, 3 do
    numbers[n + 2 + i] = BUDGET[i] >= 0 and T[i] and max(0, BUDGET[i] - T[i].v) or -1
  end
  return say(tag, numbers)
end

local function missing()
  local m, any = {now, 0, 0, 0}, false
  for i = 1, 3 do
    if BUDGET[i] >= 0 and not T[i] then m[i + 1], any = 1, true end
  end
  return any and say('missing', m)
end

-- Milliseconds until what is left of a window is at most room.
local function wait(window, room)
  local s = a[window == R and RSUM or TSUM]
  if s <= room then return 1 end
  for i = B - N + 1, B do
    s = s - a[window + i % N + 1]
    if s <= room then return (i + N) * ${bucketMs} - now end
  end
  return N * ${bucketMs}
end
`
