#!lua flags=allow-oom
-- The rules of FairScheduler.ts in Redis. One call is one verb, and one atomic step.
--
-- KEYS[1]  prefix of all keys
-- ARGV[1]  JSON, written by RedisQueueStore.ts: what is the same in each call, the bounds, the verb and what it takes
--
-- Ending a request must work on a full server too, so the script may write there: what it keeps is bounded by depth and places.
--
-- <prefix>:state              the figures of `state` and `models` below, packed
-- <prefix>:entries            hash: id -> entry, packed
-- <prefix>:replicas           sorted set: replica by the end of its lease
-- <prefix>:beats              hash: replica -> number of its beats
-- <prefix>:ids:<replica>      set: ids of its entries
-- <prefix>:out:<replica>      hash: displaced request of the replica -> seconds of its Retry-After, until the replica knows
-- <prefix>:<line>:counts      sorted set: tenants with waiting requests by their number; :keycounts:<t> the same for its keys
-- <prefix>:<line>:tenants     sorted set: tenants with waiting requests by start tag, as `since:tenant`
-- <prefix>:<line>:since       hash: tenant -> its name in `tenants`
-- <prefix>:<line>:idle        sorted set: other tenants by finish tag, as long as that is ahead of the line's time
-- <prefix>:<line>:times       hash: tenant -> virtual time among its keys
-- <prefix>:<line>:keys:<t>, :keysince:<t>, :idlekeys:<t>    the same for the keys of tenant t
-- <prefix>:<line>:wait:<t>:<m>\n<k>                         sorted set: ids of key k that wait for model m, by order
local call, floor, max, min = redis.call, math.floor, math.max, math.min

local PREFIX = KEYS[1]
local ask = cjson.decode(ARGV[1])
local REPLICA, fixed = ask.replica, ask.fixed
local PLACES, DEPTH, FITTING, TURN = ask.bounds.places, ask.bounds.depth, ask.bounds.maxLoadedModels, ask.bounds.turnMaxMs

local clock = call('TIME')
local now = ask.now or clock[1] * 1000 + floor(clock[2] / 1000)

-- Seventeen digits keep every bit of a double.
local function text(number)
  return string.format('%.17g', number)
end

-- An empty table alone would be an object.
local function list(values)
  return values[1] and cjson.encode(values) or '[]'
end

local function run_id()
  if ask.run ~= '' then return ask.run end
  return string.match(call('INFO', 'server'), 'run_id:(%x+)')
end

local state = {}
-- `known`: what `ModelState` has of each model; `together`: pairs that fit; `waiting`: how many wait for each, by line.
local models = {known = {}, together = {}, waiting = {interactive = {}, batch = {}}}

local function queue_of(line, tenant, key, model)
  return line .. ':wait:' .. tenant .. ':' .. model .. '\n' .. key
end

local function wipe()
  for _, priority in ipairs({'interactive', 'batch'}) do
    local line = PREFIX .. ':' .. priority
    local members = call('ZRANGE', line .. ':tenants', 0, -1)
    for i, member in ipairs(members) do members[i] = string.match(member, '^%d+:(.*)$') end
    for _, tenant in ipairs(call('ZRANGE', line .. ':idle', 0, -1)) do members[#members + 1] = tenant end
    for _, tenant in ipairs(members) do
      for _, member in ipairs(call('ZRANGE', line .. ':keys:' .. tenant, 0, -1)) do
        for model in pairs(models.waiting[priority]) do
          call('DEL', queue_of(line, tenant, string.match(member, '^%d+:(.*)$'), model))
        end
      end
      call('DEL', line .. ':keys:' .. tenant, line .. ':keysince:' .. tenant, line .. ':idlekeys:' .. tenant, line .. ':keycounts:' .. tenant)
    end
    call('DEL', line .. ':tenants', line .. ':since', line .. ':idle', line .. ':times', line .. ':counts')
  end
  for _, replica in ipairs(call('ZRANGE', PREFIX .. ':replicas', 0, -1)) do
    call('DEL', PREFIX .. ':ids:' .. replica, PREFIX .. ':out:' .. replica)
  end
  call('DEL', PREFIX .. ':entries', PREFIX .. ':replicas', PREFIX .. ':beats', PREFIX .. ':state')
end

-- A state of another process came out of a snapshot, and may be older than what was decided on it: it counts as lost.
local function load()
  local packed, run = call('GET', PREFIX .. ':state'), run_id()
  if packed then
    state, models = unpack(cmsgpack.unpack(packed))
    -- A state of the release before does not have them.
    state.awaited, state.complete = state.awaited or {}, state.complete or {}
  end
  if state.run == run then return end
  if packed then wipe() end
  -- Places in the line that are older are smaller, whatever was lost.
  local order = clock[1] * 1000000 + clock[2]
  state = {
    run = run, lost = now, opens = now + fixed.graceMs, awaited = {}, complete = {}, order = order, last_batch = 0, running = 0, batch_running = 0,
    turns = 0, turn_ms = 0, counted = 0, used = 0, ['time:interactive'] = 0, ['time:batch'] = 0, ['waiting:interactive'] = 0,
    ['waiting:batch'] = 0
  }
  models = {known = {}, together = {}, waiting = {interactive = {}, batch = {}}}
end

-- A message that does not arrive costs one beat. Without the right to send it, the rest of a verb must still be done.
local function tell(replica, message)
  redis.pcall('PUBLISH', PREFIX .. ':told:' .. replica, cjson.encode(message))
end

-- Entries that this call has read or made; false: there is none. What it changed is written once, at its end.
local entries, changed = {}, {}

local function entry_of(id)
  if entries[id] == nil then
    local packed = call('HGET', PREFIX .. ':entries', id)
    entries[id] = packed and cmsgpack.unpack(packed)
  end
  return entries[id]
end

local function keep(entry)
  entries[entry.id], changed[entry.id] = entry, entry
end

local function save()
  for id, entry in pairs(changed) do call('HSET', PREFIX .. ':entries', id, cmsgpack.pack(entry)) end
  call('SET', PREFIX .. ':state', cmsgpack.pack({state, models}))
end

local function waiting()
  return state['waiting:interactive'] + state['waiting:batch']
end

local function is_open()
  return now >= state.opens and state.running < PLACES
end

local function touch(replica)
  call('ZADD', PREFIX .. ':replicas', text(now + fixed.leaseMs), replica)
end

-- LoadedModels.ts

local function model_of(name)
  return models.known[name] or {resident = 0, loaded = 0, till = 0, changed = 0, running = 0, loads = 0, load_ms = fixed.assumedLoadMs}
end

local function keep_model(name, model)
  if not models.known[name] then
    local count = 0
    for _ in pairs(models.known) do count = count + 1 end
    if count >= fixed.maxModels then
      for other, one in pairs(models.known) do
        if one.resident == 0 and one.running == 0 then models.known[other] = nil end
      end
    end
  end
  models.known[name] = model
end

local function base_of(name)
  return string.match(name, '^[^ ]*')
end

local function pair_of(one, two)
  one, two = base_of(one), base_of(two)
  return one < two and one .. ' ' .. two or two .. ' ' .. one
end

-- Names of the loaded models that must leave before this one is loaded.
local function in_the_way_of(name, awaited)
  if model_of(name).resident == 1 then return {} end
  local resident = {}
  for other, model in pairs(models.known) do
    if model.resident == 1 then resident[#resident + 1] = other end
  end
  local function busy(other)
    return (model_of(other).running > 0 or awaited[other]) and 1 or 0
  end
  table.sort(resident, function(one, two)
    if busy(one) ~= busy(two) then return busy(one) < busy(two) end
    local first, second = model_of(one), model_of(two)
    if first.till ~= second.till then return first.till < second.till end
    if first.changed ~= second.changed then return first.changed < second.changed end
    return one < two
  end)
  local leaving, others = {}, {}
  for _, other in ipairs(resident) do
    local same = base_of(other) == base_of(name)
    table.insert(same and leaving or others, other)
  end
  for i, other in ipairs(others) do
    local stays = models.together[pair_of(other, name)]
    if FITTING then stays = i > #others + 1 - FITTING end
    if not stays then leaving[#leaving + 1] = other end
  end
  return leaving
end

local function unload(model)
  model.resident, model.loaded, model.changed = 0, 0, now
end

-- How long the server loaded the model for this request.
local function answered(entry, load_ms)
  local model = model_of(entry.model)
  local counted = entry.loaded == 1 or model.loaded == 0
  model.loaded = model.resident
  if not counted or load_ms < fixed.noticeableLoadMs then return 0 end
  if entry.loaded == 1 then
    for pair in pairs(models.together) do
      local one, two = string.match(pair, '^(.*) (.*)$')
      if one == base_of(entry.model) or two == base_of(entry.model) then models.together[pair] = nil end
    end
    model.resident = 0
    for _, other in ipairs(in_the_way_of(entry.model, {})) do unload(model_of(other)) end
    model.resident, model.loaded = 1, 1
  end
  model.loads = min(model.loads + 1, fixed.turnsRemembered)
  model.load_ms = model.loads == 1 and load_ms or model.load_ms + (load_ms - model.load_ms) / model.loads
  return load_ms
end

-- The server's own list.
local function see(names, ago)
  local listed, resident, pairs_known = {}, {}, 0
  for _, name in ipairs(names) do listed[name] = true end
  for _ in pairs(models.together) do pairs_known = pairs_known + 1 end
  for name, model in pairs(models.known) do
    if model.resident == 1 and not listed[base_of(name)] and model.running == 0 and model.changed < now - ago then unload(model) end
    if model.resident == 1 then resident[base_of(name)] = true end
  end
  for _, name in ipairs(names) do
    for _, other in ipairs(names) do
      local pair = pair_of(name, other)
      if other ~= name and not models.together[pair] then
        if pairs_known >= fixed.maxPairs then models.together, pairs_known = {}, 0 end
        models.together[pair], pairs_known = true, pairs_known + 1
      end
    end
    local model = model_of(name)
    if not resident[name] and model.changed < now - ago and not in_the_way_of(name, {})[1] then
      -- After a loss the turn of what is loaded begins anew: another load would cost more.
      model.resident, model.loaded, model.till = 1, 1, now < state.opens and now + TURN or now
      keep_model(name, model)
    end
  end
end

-- A flow that gets its first waiting request starts at the virtual time, or at its finish tag when that is ahead.
local function activate(active, since, idle, name, time)
  if call('HEXISTS', since, name) == 1 then return end
  local tag = max(time, tonumber(call('ZSCORE', idle, name) or time))
  call('ZREM', idle, name)
  state.order = state.order + 1
  local member = string.format('%017.0f:%s', state.order, name)
  call('HSET', since, name, member)
  call('ZADD', active, text(tag), member)
end

-- A flow without waiting requests is kept only while its finish tag is ahead of the virtual time.
local function deactivate(active, since, idle, name, time)
  local member = call('HGET', since, name)
  if not member then return end
  local tag = tonumber(call('ZSCORE', active, member))
  call('ZREM', active, member)
  call('HDEL', since, name)
  if tag > time then call('ZADD', idle, text(tag), name) end
end

local function line_of(priority)
  return PREFIX .. ':' .. priority
end

local function time_of(line, tenant)
  return tonumber(call('HGET', line .. ':times', tenant) or 0)
end

local function forget_tenant(line, tenant)
  call('DEL', line .. ':idlekeys:' .. tenant)
  call('HDEL', line .. ':times', tenant)
end

local function prune(line, time)
  for _, tenant in ipairs(call('ZRANGEBYSCORE', line .. ':idle', '-inf', text(time))) do
    call('ZREM', line .. ':idle', tenant)
    forget_tenant(line, tenant)
  end
end

-- Counts a waiting request that comes or goes.
local function count(line, entry, by)
  local tenant, key, waiting = entry.tenant, entry.key, models.waiting[entry.priority]
  local left = (waiting[entry.model] or 0) + by
  waiting[entry.model] = left > 0 and left or nil
  for set, name in pairs({[line .. ':counts'] = tenant, [line .. ':keycounts:' .. tenant] = key}) do
    if tonumber(call('ZINCRBY', set, by, name)) <= 0 then call('ZREM', set, name) end
  end
end

-- Whether a request waits for a model that another one must leave for.
local function is_blocked()
  for _, awaited in pairs(models.waiting) do
    for name in pairs(awaited) do
      if in_the_way_of(name, awaited)[1] then return true end
    end
  end
  return false
end

local function add(entry, replica, order)
  local line, tenant, key = line_of(entry.priority), entry.tenant, entry.key
  entry.replica, entry.order, entry.running, entry.loaded, entry.tenant_tag, entry.key_tag = replica, order, 0, 0, 0, 0
  entry.beat = tonumber(call('HGET', PREFIX .. ':beats', replica) or 0)
  touch(replica)
  -- `last_batch` is when one went last, or the first of those that wait came.
  if entry.priority == 'batch' and state['waiting:batch'] == 0 then state.last_batch = max(state.last_batch, now) end
  local may_block = model_of(entry.model).resident == 0 and not is_blocked()
  call('SADD', PREFIX .. ':ids:' .. replica, entry.id)
  state['waiting:' .. entry.priority] = state['waiting:' .. entry.priority] + 1
  local time = state['time:' .. entry.priority]
  if call('HEXISTS', line .. ':since', tenant) == 0 and not call('ZSCORE', line .. ':idle', tenant) then forget_tenant(line, tenant) end
  activate(line .. ':tenants', line .. ':since', line .. ':idle', tenant, time)
  activate(line .. ':keys:' .. tenant, line .. ':keysince:' .. tenant, line .. ':idlekeys:' .. tenant, key, time_of(line, tenant))
  call('ZADD', queue_of(line, tenant, key, entry.model), text(order), entry.id)
  count(line, entry, 1)
  -- A turn is for those who share the server: where nobody waited for another model, the turns begin when somebody does.
  if may_block and is_blocked() then
    for _, model in pairs(models.known) do
      if model.resident == 1 then model.till = max(model.till, now + TURN) end
    end
  end
  keep(entry)
  return entry
end

local function withdraw(entry)
  local line, tenant, key = line_of(entry.priority), entry.tenant, entry.key
  if call('ZREM', queue_of(line, tenant, key, entry.model), entry.id) == 0 then return end
  state['waiting:' .. entry.priority] = state['waiting:' .. entry.priority] - 1
  count(line, entry, -1)
  if call('ZSCORE', line .. ':keycounts:' .. tenant, key) then return end
  deactivate(line .. ':keys:' .. tenant, line .. ':keysince:' .. tenant, line .. ':idlekeys:' .. tenant, key, time_of(line, tenant))
  if call('EXISTS', line .. ':keys:' .. tenant) == 1 then return end
  local time = state['time:' .. entry.priority]
  deactivate(line .. ':tenants', line .. ':since', line .. ':idle', tenant, time)
  if not call('ZSCORE', line .. ':idle', tenant) then forget_tenant(line, tenant) end
end

-- The tag of a flow with waiting requests.
local function tag_of(active, since, name)
  return tonumber(call('ZSCORE', active, call('HGET', since, name)))
end

local function least_tag(active)
  return tonumber(call('ZRANGE', active, 0, 0, 'WITHSCORES')[2])
end

-- Charges those who wait for a model.
local function charge(line, model, load)
  local tenants = {}
  for _, member in ipairs(call('ZRANGE', line .. ':tenants', 0, -1)) do
    local tenant, keys = string.match(member, '^%d+:(.*)$'), {}
    for _, key in ipairs(call('ZRANGE', line .. ':keys:' .. tenant, 0, -1)) do
      if call('EXISTS', queue_of(line, tenant, string.match(key, '^%d+:(.*)$'), model)) == 1 then keys[#keys + 1] = key end
    end
    if keys[1] then tenants[#tenants + 1] = {member = member, active = line .. ':keys:' .. tenant, keys = keys} end
  end
  for _, one in ipairs(tenants) do
    call('ZINCRBY', line .. ':tenants', text(load / #tenants), one.member)
    for _, key in ipairs(one.keys) do call('ZINCRBY', one.active, text(load / #tenants / #one.keys), key) end
  end
end

-- `passes`: requests that wait for another model have smaller tags.
local function start(entry, load, passes)
  local line, tenant, key = line_of(entry.priority), entry.tenant, entry.key
  local tenants, keys = line .. ':tenants', line .. ':keys:' .. tenant
  local tenant_member, key_member = call('HGET', line .. ':since', tenant), call('HGET', line .. ':keysince:' .. tenant, key)
  local tenant_tag, key_tag = tonumber(call('ZSCORE', tenants, tenant_member)), tonumber(call('ZSCORE', keys, key_member))
  state['time:' .. entry.priority] = max(state['time:' .. entry.priority], passes and least_tag(tenants) or tenant_tag)
  local time = max(time_of(line, tenant), passes and least_tag(keys) or key_tag)
  if load > 0 then
    charge(line, entry.model, load)
    tenant_tag, key_tag = tonumber(call('ZSCORE', tenants, tenant_member)), tonumber(call('ZSCORE', keys, key_member))
  end
  call('HSET', line .. ':times', tenant, text(time))
  call('ZREMRANGEBYSCORE', line .. ':idlekeys:' .. tenant, '-inf', text(time))
  call('ZREMRANGEBYRANK', line .. ':idlekeys:' .. tenant, 0, -fixed.maxIdleKeys - 1)
  entry.charged = min(entry.cost, state.counted == 0 and 1 or state.used)
  entry.tenant_tag, entry.key_tag = tenant_tag + entry.charged / entry.weight, key_tag + entry.charged
  call('ZADD', line .. ':tenants', text(entry.tenant_tag), tenant_member)
  call('ZADD', line .. ':keys:' .. tenant, text(entry.key_tag), key_member)
  withdraw(entry)
  local model = model_of(entry.model)
  if model.resident == 0 then model.resident, model.loaded, model.till = 1, 0, now + model.load_ms + TURN end
  model.running, model.changed = model.running + 1, now
  keep_model(entry.model, model)
  entry.running, entry.started, entry.loaded = 1, now, model.loaded
  keep(entry)
  state.running = state.running + 1
  if entry.priority == 'batch' then
    state.batch_running, state.last_batch = state.batch_running + 1, now
  end
  prune(line, state['time:' .. entry.priority])
end

-- Moves the tag of a flow that is known; answers false when it is forgotten.
local function shift(active, since, idle, name, by, time)
  local member = call('HGET', since, name)
  if member then
    call('ZINCRBY', active, text(by), member)
    return true
  end
  if not call('ZSCORE', idle, name) then return false end
  if tonumber(call('ZINCRBY', idle, text(by), name)) <= time then call('ZREM', idle, name) end
  return true
end

local function correct(entry, used)
  local line, tenant, key = line_of(entry.priority), entry.tenant, entry.key
  local by, time = used - (entry.charged or entry.cost), state['time:' .. entry.priority]
  if shift(line .. ':tenants', line .. ':since', line .. ':idle', tenant, by / entry.weight, time) then
    local inner = time_of(line, tenant)
    if not shift(line .. ':keys:' .. tenant, line .. ':keysince:' .. tenant, line .. ':idlekeys:' .. tenant, key, by, inner) then
      if entry.key_tag + by > inner then call('ZADD', line .. ':idlekeys:' .. tenant, text(entry.key_tag + by), key) end
    end
    if call('HEXISTS', line .. ':since', tenant) == 0 and not call('ZSCORE', line .. ':idle', tenant) then forget_tenant(line, tenant) end
  else
    local tag = entry.tenant_tag + by / entry.weight
    if tag > time then
      forget_tenant(line, tenant)
      call('ZADD', line .. ':idle', text(tag), tenant)
    end
  end
end

local function remove(entry)
  if entry.running == 1 then
    state.running = state.running - 1
    if entry.priority == 'batch' then state.batch_running = state.batch_running - 1 end
    local model = model_of(entry.model)
    model.running, model.changed = model.running - 1, now
  else
    withdraw(entry)
  end
  entries[entry.id], changed[entry.id] = false, nil
  call('HDEL', PREFIX .. ':entries', entry.id)
  call('SREM', PREFIX .. ':ids:' .. entry.replica, entry.id)
end

local function next_priority()
  local due = state.batch_running == 0 and now - state.last_batch >= fixed.batchEveryMs
  if state['waiting:batch'] > 0 and (state['waiting:interactive'] == 0 or due) then return 'batch' end
  return state['waiting:interactive'] > 0 and 'interactive'
end

-- The first request in the fair order of those whose model is in `allowed`. `all`: every model is.
local function first(line, allowed, all)
  local last = all and 0 or -1
  for _, tenant_member in ipairs(call('ZRANGE', line .. ':tenants', 0, last)) do
    local tenant = string.match(tenant_member, '^%d+:(.*)$')
    for _, key_member in ipairs(call('ZRANGE', line .. ':keys:' .. tenant, 0, last)) do
      local key, id, order = string.match(key_member, '^%d+:(.*)$'), nil, math.huge
      for model in pairs(allowed) do
        local oldest = call('ZRANGE', queue_of(line, tenant, key, model), 0, 0, 'WITHSCORES')
        if oldest[1] and tonumber(oldest[2]) < order then id, order = oldest[1], tonumber(oldest[2]) end
      end
      if id then return entry_of(id) end
    end
  end
end

local function load_time(name)
  local used, turn = state.counted == 0 and 1 or state.used, state.turns == 0 and fixed.assumedTurnMs or state.turn_ms
  return model_of(name).load_ms * PLACES * used / max(1, turn)
end

local function lead(line, one, two)
  if one.tenant ~= two.tenant then
    return tag_of(line .. ':tenants', line .. ':since', one.tenant) - tag_of(line .. ':tenants', line .. ':since', two.tenant)
  end
  local keys, since = line .. ':keys:' .. one.tenant, line .. ':keysince:' .. one.tenant
  return tag_of(keys, since, one.key) - tag_of(keys, since, two.key)
end

local function is_over(line, name, blocked)
  local model = model_of(name)
  if model.till <= now then return true end
  local own = models.waiting[blocked.priority][name] and first(line, {[name] = true})
  local load = model_of(blocked.model).load_ms
  -- A key is never ahead of itself: its models get a load time each.
  if own and own.key == blocked.key and own.tenant == blocked.tenant then return now >= model.till - TURN + load end
  if own then return lead(line, own, blocked) >= load_time(blocked.model) end
  return model.running == 0 and now - model.changed >= (load < 2000 and 0 or min(1000, load / 8))
end

-- The request of a line that goes next, the models that must leave for it, and whether it passes others.
local function choose(priority)
  local line, awaited = line_of(priority), models.waiting[priority]
  local ready, behind, ways = {}, {}, {}
  for name in pairs(awaited) do
    ways[name] = in_the_way_of(name, awaited)
    if ways[name][1] then behind[name] = true else ready[name] = true end
  end
  if not next(behind) then return first(line, ready, true), {}, false end
  local blocked = first(line, behind)
  local leaving, over, idle, staying = ways[blocked.model], true, true, {}
  for _, name in ipairs(leaving) do over = over and is_over(line, name, blocked) end
  if not over then return first(line, ready), {}, true end
  for name in pairs(awaited) do
    if model_of(name).resident == 1 then staying[name] = true end
  end
  for _, name in ipairs(leaving) do
    local model = model_of(name)
    model.till, idle, staying[name] = min(model.till, now), idle and model.running == 0, nil
  end
  if idle then return blocked, leaving, true end
  if PLACES - state.running > awaited[blocked.model] then return first(line, staying), {}, true end
end

-- Fills the places. A request that gets a place by another call gets a message; `asking` reads its place in the answer.
local function dispatch(asking)
  while is_open() do
    local priority = next_priority()
    if not priority then return end
    local entry, leaving, passes = choose(priority)
    if not entry then return end
    local load = leaving[1] and load_time(entry.model) or 0
    for _, name in ipairs(leaving) do unload(model_of(name)) end
    start(entry, load, passes)
    if entry.id ~= asking then tell(entry.replica, {id = entry.id, loaded = entry.loaded == 1}) end
  end
end

local function bury()
  local dead = call('ZRANGEBYSCORE', PREFIX .. ':replicas', '-inf', text(now))
  for _, replica in ipairs(dead) do
    for _, id in ipairs(call('SMEMBERS', PREFIX .. ':ids:' .. replica)) do
      local entry = entry_of(id)
      if entry then remove(entry) end
    end
    call('DEL', PREFIX .. ':ids:' .. replica, PREFIX .. ':out:' .. replica)
    call('ZREM', PREFIX .. ':replicas', replica)
    call('HDEL', PREFIX .. ':beats', replica)
    state.complete[replica] = nil
  end
end

-- An average that starts as the plain mean, so that the first figures count in full.
local function average(count, mean, figure)
  state[count] = min(state[count] + 1, fixed.turnsRemembered)
  state[mean] = state[count] == 1 and figure or state[mean] + (figure - state[mean]) / state[count]
end

local function retry_after()
  local turn = state.turns == 0 and fixed.assumedTurnMs or state.turn_ms
  return min(fixed.maxRetryAfterS, max(1, math.ceil((waiting() + 1) * turn / PLACES / 1000)))
end

local function standing(entry)
  if entry.running == 1 then return {'granted', text(entry.loaded)} end
  return {'waiting', text(entry.order)}
end

-- The request that gives up its place in the queue for `ticket`, if a tenant or a key has too many.
local function crowded(ticket)
  local instead = ticket.priority == 'interactive' and state['waiting:batch'] > 0
  local line = line_of(instead and 'batch' or ticket.priority)
  local most = call('ZREVRANGE', line .. ':counts', 0, 0, 'WITHSCORES')
  if not most[1] then return end
  local own = tonumber(call('ZSCORE', line .. ':counts', ticket.tenant) or 0)
  local other = instead or tonumber(most[2]) > own + 1
  local tenant = other and most[1] or ticket.tenant
  local counts = line .. ':keycounts:' .. tenant
  local key = call('ZREVRANGE', counts, 0, 0, 'WITHSCORES')
  if not key[1] then return end
  if not other and tonumber(key[2]) <= tonumber(call('ZSCORE', counts, ticket.key) or 0) + 1 then return end
  local id, order = nil, -1
  for model in pairs(models.waiting[instead and 'batch' or ticket.priority]) do
    local newest = call('ZREVRANGE', queue_of(line, tenant, key[1], model), 0, 0, 'WITHSCORES')
    if newest[1] and tonumber(newest[2]) > order then id, order = newest[1], tonumber(newest[2]) end
  end
  return id and entry_of(id)
end

local verbs = {}

function verbs.enter()
  local ticket = ask.ticket
  bury()
  dispatch(ticket.id)
  local known = entry_of(ticket.id)
  if known then return standing(known) end
  local direct = waiting() == 0 and is_open()
  if waiting() >= DEPTH and not direct then
    local gone, retry = crowded(ticket), retry_after()
    if not gone then return {'full', text(retry)} end
    remove(gone)
    call('HSET', PREFIX .. ':out:' .. gone.replica, gone.id, text(retry))
    tell(gone.replica, {id = gone.id, retryAfterS = retry})
  end
  state.order = state.order + 1
  add(ticket, REPLICA, state.order)
  dispatch(ticket.id)
  local entry = entry_of(ticket.id)
  -- A place was free, and another model must leave first.
  if direct and entry.running == 0 and DEPTH == 0 then
    remove(entry)
    return {'full', text(retry_after())}
  end
  return standing(entry)
end

function verbs.leave()
  local entry = entry_of(ask.id)
  if entry then
    if entry.running == 1 then correct(entry, 0) end
    remove(entry)
  end
  bury()
  dispatch()
  return {'left', text(retry_after())}
end

verbs['end'] = function()
  local entry, loaded = entry_of(ask.id), 0
  if entry then
    if entry.running == 1 then
      local load = ask.loadMs or 0
      if ask.used > 0 then
        correct(entry, ask.used)
        average('counted', 'used', ask.used)
      end
      if ask.loadMs then loaded = answered(entry, load) end
      local lost = load >= fixed.noticeableLoadMs and load or 0
      if entry.started then average('turns', 'turn_ms', max(0, now - entry.started - lost)) end
    end
    remove(entry)
  end
  bury()
  dispatch()
  return {'ended', text(loaded)}
end

-- After a loss: once all replicas that were known before have named their requests, places are given again. In its first beat a
-- replica may not name a request whose place it has just been told.
local function report(beats, knows_all)
  for _, peer in ipairs(ask.peers) do state.awaited[peer] = true end
  if beats > 1 and knows_all then state.complete[REPLICA] = true end
  if not next(state.awaited) then return end
  for name in pairs(state.awaited) do
    if not state.complete[name] or not call('ZSCORE', PREFIX .. ':replicas', name) then return end
  end
  state.opens = min(state.opens, (state.lost or state.opens) + fixed.allReportedMs)
end

function verbs.beat()
  touch(REPLICA)
  local named = {}
  for _, ids in ipairs({ask.running, ask.waiting}) do
    for _, id in ipairs(ids) do named[id] = true end
  end
  local beats = tonumber(call('HGET', PREFIX .. ':beats', REPLICA) or 0)
  for _, id in ipairs(call('SMEMBERS', PREFIX .. ':ids:' .. REPLICA)) do
    local entry = not named[id] and entry_of(id)
    if entry and entry.beat < beats then remove(entry) end
  end
  call('HSET', PREFIX .. ':beats', REPLICA, beats + 1)
  if now < state.opens then
    local knows_all = true
    for id in pairs(named) do
      if not entry_of(id) and call('HEXISTS', PREFIX .. ':out:' .. REPLICA, id) == 0 then knows_all = false end
    end
    report(beats + 1, knows_all)
  end
  if ask.seen then see(ask.seen.names, ask.seen.agoMs) end
  bury()
  dispatch()
  local told, unknown, out = {}, {}, PREFIX .. ':out:' .. REPLICA
  local gone = call('HGETALL', out)
  for i = 1, #gone, 2 do
    if named[gone[i]] then
      told[#told + 1] = {id = gone[i], retryAfterS = tonumber(gone[i + 1])}
      named[gone[i]] = 'displaced'
    else
      call('HDEL', out, gone[i])
    end
  end
  for i, ids in ipairs({ask.running, ask.waiting}) do
    for _, id in ipairs(ids) do
      local entry = entry_of(id)
      if named[id] == 'displaced' then
        -- It was told above.
      elseif not entry then
        unknown[#unknown + 1] = id
      elseif i == 2 and entry.running == 1 then
        told[#told + 1] = {id = id, loaded = entry.loaded == 1}
      end
    end
  end
  local uses, used = {}, {}
  local function use_of(name)
    if not used[name] then
      local model = model_of(name)
      used[name] = {name = name, resident = model.resident == 1, running = model.running, waiting = 0}
      uses[#uses + 1] = used[name]
    end
    return used[name]
  end
  for name, model in pairs(models.known) do
    if model.resident == 1 then use_of(name) end
  end
  for _, line in pairs(models.waiting) do
    for name, more in pairs(line) do use_of(name).waiting = use_of(name).waiting + more end
  end
  local soonest = tonumber(call('ZRANGE', PREFIX .. ':replicas', 0, 0, 'WITHSCORES')[2])
  local known = {}
  if state.opens > now then
    soonest = min(soonest, state.opens)
    if state.awaited[REPLICA] and not state.complete[REPLICA] then soonest = now end
  else
    known = call('ZRANGE', PREFIX .. ':replicas', 0, -1)
  end
  return {'beat', list(told), list(unknown), list(uses), text(soonest - now), list(known)}
end

-- A ticket without an order has a place.
function verbs.restore()
  for _, held in ipairs(ask.held) do
    local ticket, order = held.ticket, held.order
    if not entry_of(ticket.id) then
      state.order = max(state.order, order or 0)
      local entry = add(ticket, REPLICA, order or 0)
      if not order then
        start(entry, 0, false)
        -- It began before.
        entry.started = nil
        keep(entry)
      end
    end
  end
  bury()
  dispatch()
  return {'restored'}
end

load()
local answer = verbs[ask.verb]()
save()
return answer
