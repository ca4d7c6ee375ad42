-- Every script of the Meter begins with this file: the arguments of a call, the clock, and the format of a counter.
--
-- KEYS     see each script
-- ARGV     all numbers as one JSON array; run id of the server, or ''
-- Reply    one JSON text: an array of a tag and numbers; an array of these for several requests (batch.lua)
--
-- All numbers are in one argument, because client libraries make several objects for every argument and every element of a
-- reply (bench/meter.ts). scripts.ts replaces the names of constants (bounds.ts) by their values.
local call, max, min, floor, match, format = redis.call, math.max, math.min, math.floor, string.match, string.format

local RUN_ID = ARGV[2]
-- 26 numbers take 1.3 us. Separated by blanks and read by gmatch and tonumber they took 4.8.
local NUMBERS = cjson.decode(ARGV[1])

local reply_formats = {}
local function reply(tag, numbers)
  local count = #numbers
  local words = reply_formats[count]
  if not words then
    words = '["%s"' .. string.rep(',%d', count) .. ']'
    reply_formats[count] = words
  end
  return format(words, tag, unpack(numbers))
end

-- The time in milliseconds: `given`, or the time of Redis when `given` is below 0. Also the reply of TIME.
local redis_time
local function clock(given)
  redis_time = redis_time or call('TIME')
  if given >= 0 then return given, redis_time end
  return redis_time[1] * 1000 + floor(redis_time[2] / 1000), redis_time
end

-- The gateway sends the run id of its server. When it does not know it, the script asks Redis, but only if there is a
-- counter to compare: INFO is the most expensive command here.
local known_run_id = RUN_ID ~= '' and string.sub(RUN_ID, 1, 12)
local function run_id()
  known_run_id = known_run_id or string.sub(match(call('INFO', 'server'), 'run_id:(%x+)'), 1, 12)
  return known_run_id
end

-- A counter as it is stored (`tokens:held:at:generation`), if this Redis process made it. `held` is the part of `tokens` that
-- requests hold and have not used.
local function parse_counter(text)
  if not text then return false end
  local tokens, held, loaded_at, generation, process = match(text, '^(%d+):(%d+):(%d+):((%x+):.*)$')
  return process == run_id()
    and {tokens = tonumber(tokens), held = tonumber(held), loaded_at = tonumber(loaded_at), generation = generation}
end

local function start_counter(key, tokens, now, time, life)
  call('SET', key, format('%d:0:%d:%s:%s:%s', tokens, now, run_id(), time[1], time[2]), 'PX', life)
end
