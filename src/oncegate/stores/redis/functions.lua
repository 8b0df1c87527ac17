-- What a Redis ledger does to one key, each operation in one step. `functions.py` loads this text.
--
-- KEYS[1] is an entry, KEYS[2] the clock and fence counter of its slot, KEYS[3] the index of open entries there: all
-- have the same hash tag. The counter is never removed, so fences grow past entries that were removed. ARGV[1] is the
-- ledger's time where a test gives it, else empty.
--
-- An entry is a hash. s state, f fence, a attempt, p fingerprint, t token, m facts for people, k milliseconds to
-- keep it, l end of the lease (or the last call), b first reserved, e settled, r reason, o outcome, q next attempt,
-- i interruptions, c claimed again, d declared, y tried from, v event, +name a step, n records of its history written
-- so far, -0 to -31 the last of them, w conflicts among them. Only a final entry expires, and it has no event any more.
--
-- The index is a sorted set. The score of an entry in flight is the end of its lease. Entries to be tried again come
-- above it, by the time of the next attempt; then those that wait for a person, by the time since when.

local IN_FLIGHT, COMMITTED, FAILED, RETRYABLE, UNKNOWN, HELD, QUARANTINED = '1', '2', '3', '4', '5', '6', '7'
local LEAP_MAX_MS = 20000   -- what one reading of the clock may add; a pause or a step ahead adds no more
local KEPT_AFTER_MS = 1000  -- how far the clock moves before the move is written
local RETRY_BAND, WAIT_BAND = 1125899906842624, 2251799813685248  -- 2^50 and 2^51; `open_entries.py` has them too
local RECORDS_MAX, CONFLICTS_MAX = 32, 8
local TAKEN_UP, CONFLICT, RECOVERED = 1, 8, 9  -- kinds of records; those of states are the states' numbers

-- The ledger's time: it goes on with the server's clock and does not follow its steps.
local function read_clock(clock, given)
  if given ~= '' then return tonumber(given), nil end
  local time = redis.call('TIME')
  local wall = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  local kept = redis.call('HMGET', clock, 't', 'w')
  if not kept[1] then return wall, wall end
  local gained = wall - tonumber(kept[2])
  local ticks = tonumber(kept[1]) + math.min(math.max(gained, 0), LEAP_MAX_MS)
  if math.abs(gained) >= KEPT_AFTER_MS then return ticks, wall end
  return ticks, nil
end

local function now_of(clock, given)
  local ticks, wall = read_clock(clock, given)
  if wall then redis.call('HSET', clock, 't', ticks, 'w', wall) end
  return ticks
end

local function steps_of(key)
  local all, steps = redis.call('HGETALL', key), {}
  for place = 1, #all, 2 do
    if string.sub(all[place], 1, 1) == '+' then
      steps[#steps + 1] = all[place + 1]
    end
  end
  return steps
end

local function is_held(key, fence, token)
  local known = redis.call('HMGET', key, 's', 'f', 't')
  return known[1] == IN_FLIGHT and known[2] == fence and known[3] == token
end

-- Writes steps from ARGV[first] on, as name and record in turn.
local function write_steps(key, args, first)
  for place = first, #args, 2 do
    redis.call('HSET', key, '+' .. args[place], args[place + 1])
  end
end

local function clear_steps(key)
  for _, name in ipairs(redis.call('HKEYS', key)) do
    if string.sub(name, 1, 1) == '+' then redis.call('HDEL', key, name) end
  end
end

local function add(list, name, value)
  local place = #list
  list[place + 1], list[place + 2] = name, value
end

-- Puts an entry into the index, or moves it there. The index's key ends with 'open', where an entry's has its own key.
local function index(keys, score)
  redis.call('ZADD', keys[3], score, string.sub(keys[1], #keys[3] - 3))
end

local function drop_index(keys)
  redis.call('ZREM', keys[3], string.sub(keys[1], #keys[3] - 3))
end

-- Adds a record to the history of an entry; the oldest one goes.
local function note(key, kind, at, actor, text)
  local number = redis.call('HINCRBY', key, 'n', 1)
  local record = cmsgpack.pack({number, tonumber(kind), tonumber(at), actor, text or ''})
  redis.call('HSET', key, '-' .. (number % RECORDS_MAX), record)
end

local function keep_final(key, keep_ms)
  if keep_ms and tonumber(keep_ms) > 0 then redis.call('PEXPIRE', key, keep_ms) end
end

-- The same decision as `oncegate.model.states.judge`; a test compares the two.
local function judge(state, same, now, lease_until, retry_at, attempt, attempts_max, deaths, deaths_max)
  if not same then return 'conflict' end
  if state == IN_FLIGHT and now < lease_until then return 'busy' end
  if state == RETRYABLE and now < retry_at then return 'busy' end
  if state == IN_FLIGHT or state == RETRYABLE then
    local is_deadly = state == IN_FLIGHT and deaths + 1 >= deaths_max
    if attempt >= attempts_max or is_deadly then return 'hold' end
    if state == IN_FLIGHT then return 'recover' end
    return 'retry'
  end
  if state == COMMITTED or state == FAILED then return 'replay' end
  if state == UNKNOWN or state == HELD then return 'hold' end
  if state == QUARANTINED then return 'quarantine' end
  return redis.error_reply('CORRUPT state ' .. tostring(state))
end

local function why_given_up(state, attempt, deaths, deaths_max)
  if state == IN_FLIGHT and deaths + 1 >= deaths_max then
    return 'gave up after ' .. (deaths + 1) .. ' workers died of it in a row'
  end
  return 'gave up after ' .. attempt .. ' attempts'
end

local FIELDS = {'s', 'f', 'a', 'p', 'l', 'q', 'i', 'b', 'r', 'o', 'm', 'c', 'd', 'y'}

-- 2 token, 3 fingerprint, 4 lease_ms, 5 attempts_max, 6 deaths_max, 7 at_once, 8 state of a new key, 9 its reason,
-- 10 facts, 11 declared, 12 received_at_ms, 13 keep_ms, 14 outcome of a new key that is only recorded, 15 actor,
-- 16 event. 11 and 14 begin with '=' where they are given.
local function insert(keys, args, now)
  local key, fence, state = keys[1], redis.call('HINCRBY', keys[2], 'f', 1), args[8]
  if state ~= IN_FLIGHT then
    redis.call('HSET', key, 's', state, 'f', fence, 'a', 0, 'p', args[3], 'm', args[10], 'k', args[13],
      'e', args[12], 'r', args[9], 'v', args[16])
    note(key, state, args[12], args[15], args[9])
    index(keys, WAIT_BAND + tonumber(args[12]))
    return {'parked', fence, now}
  end
  if args[14] ~= '' then
    redis.call('HSET', key, 's', COMMITTED, 'f', fence, 'a', 1, 'p', args[3], 't', args[2], 'm', args[10],
      'e', args[12], 'o', string.sub(args[14], 2))
    keep_final(key, args[13])
    return {'run', fence, now}
  end
  local entry = {'s', IN_FLIGHT, 'f', fence, 'a', 1, 'p', args[3], 't', args[2], 'm', args[10], 'k', args[13],
    'l', now + tonumber(args[4]), 'b', now, 'v', args[16]}
  if args[11] ~= '' then add(entry, 'd', string.sub(args[11], 2)) end
  redis.call('HSET', key, unpack(entry))
  index(keys, now + tonumber(args[4]))
  return {'run', fence, now}
end

local function take_over(keys, args, now, known, decision)
  local key, state, first, deaths = keys[1], known[1], known[8], tonumber(known[7] or 0)
  local fence, attempt = redis.call('HINCRBY', keys[2], 'f', 1), tonumber(known[3]) + 1
  redis.call('HSET', key, 's', IN_FLIGHT, 'f', fence, 'a', attempt, 't', args[2], 'l', now + tonumber(args[4]),
    'c', 1, 'i', state == IN_FLIGHT and deaths + 1 or 0)
  redis.call('HDEL', key, 'e', 'r', 'q')
  if not first then
    redis.call('HSET', key, 'b', now)
    redis.call('HDEL', key, 'd')
    if args[11] ~= '' then redis.call('HSET', key, 'd', string.sub(args[11], 2)) end
  end
  index(keys, now + tonumber(args[4]))
  note(key, decision == 'retry' and TAKEN_UP or RECOVERED, args[12], args[15],
    (first and '' or 'first ') .. 'attempt ' .. attempt .. ' under fence ' .. fence)
  return {decision, fence, now, attempt, state, first or '', known[5] or '0', known[11], first and known[13],
    known[14] or '0', steps_of(key)}
end

-- Other content under a key that waits: a person who decides must know that it came. A sender cannot fill the history.
local function note_conflict(key, state, args)
  if state ~= UNKNOWN and state ~= HELD and state ~= QUARANTINED then return end
  if redis.call('HINCRBY', key, 'w', 1) > CONFLICTS_MAX then return end
  note(key, CONFLICT, args[12], args[15], 'came while the first waits for a person')
end

local function reserve(keys, args)
  local key, clock = keys[1], keys[2]
  local now = now_of(clock, args[1])
  if not redis.call('HGET', key, 's') then return insert(keys, args, now) end
  local known = redis.call('HMGET', key, unpack(FIELDS))
  local state, attempt, lease_until = known[1], tonumber(known[3]), tonumber(known[5] or 0)
  local retry_at = args[7] == '1' and 0 or tonumber(known[6] or 0)
  local deaths, deaths_max = tonumber(known[7] or 0), tonumber(args[6])
  local decision = judge(state, known[4] == args[3], now, lease_until, retry_at, attempt, tonumber(args[5]),
    deaths, deaths_max)
  if type(decision) == 'table' then return decision end
  if decision == 'conflict' then
    note_conflict(key, state, args)
    return {decision, 0, now}
  end
  if decision == 'recover' or decision == 'retry' then
    return take_over(keys, args, now, known, decision)
  end
  local reason = known[9]
  if decision == 'hold' and (state == IN_FLIGHT or state == RETRYABLE) then
    reason = why_given_up(state, attempt, deaths, deaths_max)
    redis.call('HSET', key, 's', HELD, 'e', args[12], 'r', reason)
    redis.call('HDEL', key, 't', 'q')
    note(key, HELD, args[12], args[15], reason)
    index(keys, WAIT_BAND + tonumber(args[12]))
  end
  local busy_until = state == RETRYABLE and retry_at or lease_until
  return {decision, 0, now, state, reason, known[10], math.max(0, busy_until - now), known[11], known[12]}
end

-- 2 fence, 3 token, 4 lease_ms
local function renew(keys, args)
  if not is_held(keys[1], args[2], args[3]) then return 0 end
  local lease_until = now_of(keys[2], args[1]) + tonumber(args[4])
  redis.call('HSET', keys[1], 'l', lease_until)
  index(keys, lease_until)
  return 1
end

-- 2 fence, 3 token, then steps
local function progress(keys, args)
  if not is_held(keys[1], args[2], args[3]) then return 0 end
  write_steps(keys[1], args, 4)
  return 1
end

-- Ends a claim whose entry is tried again, or waits for a person.
local function leave_open(keys, args, ended)
  local now = now_of(keys[2], args[1])
  local retry_at = args[10] ~= '' and now + tonumber(args[10]) or nil
  add(ended, 'l', args[8] ~= '' and args[8] or now)
  if retry_at then add(ended, 'q', retry_at) end
  redis.call('HSET', keys[1], unpack(ended))
  redis.call('HDEL', keys[1], 't')
  index(keys, args[4] == RETRYABLE and RETRY_BAND + (retry_at or now) or WAIT_BAND + tonumber(args[5]))
end

-- 2 fence, 3 token, 4 state, 5 at_ms, 6 outcome, 7 reason (both with '=' where given), 8 last call or empty,
-- 9 attempts given back, 10 busy_ms or empty, 11 clear steps, 12 actor, then steps
local function settle(keys, args)
  local key, state = keys[1], args[4]
  local known = redis.call('HMGET', key, 's', 'f', 't', 'k', 'n')
  if known[1] ~= IN_FLIGHT or known[2] ~= args[2] or known[3] ~= args[3] then return 0 end
  local ended, reason = {'s', state, 'e', args[5]}, args[7] ~= '' and string.sub(args[7], 2) or nil
  if args[6] ~= '' then add(ended, 'o', string.sub(args[6], 2)) end
  if reason then add(ended, 'r', reason) end
  if args[9] ~= '0' then redis.call('HINCRBY', key, 'a', -tonumber(args[9])) end
  local is_final = state == COMMITTED or state == FAILED
  if known[5] or not is_final then note(key, state, args[5], args[12], reason) end
  if is_final then
    redis.call('HSET', key, unpack(ended))
    redis.call('HDEL', key, 'l', 'b', 'd', 'i', 'k', 'y', 'v')
    drop_index(keys)
    keep_final(key, known[4])
  else
    leave_open(keys, args, ended)
  end
  write_steps(key, args, 13)
  if args[11] == '1' then clear_steps(key) end
  return 1
end

-- 2 fence, 3 token
local function withdraw(keys, args)
  local key = keys[1]
  if not is_held(key, args[2], args[3]) then return 0 end
  if redis.call('HEXISTS', key, 'c') == 1 or #steps_of(key) > 0 then return 0 end
  redis.call('DEL', key)
  drop_index(keys)
  return 1
end

-- 2 fence, 3 token, 4 outcome
local function attach(keys, args)
  local known = redis.call('HMGET', keys[1], 's', 'f', 't', 'o')
  if known[1] ~= COMMITTED or known[2] ~= args[2] or known[3] ~= args[3] or known[4] then return 0 end
  redis.call('HSET', keys[1], 'o', args[4])
  return 1
end

-- What a person decided: 2 fence, 3 states it starts from, 4 state it leads to, 5 at_ms, 6 reason, 7 kind of record,
-- 8 actor, 9 note, 10 outcome (with '=' where given), then steps.
local function rule(keys, args)
  local key, state = keys[1], args[4]
  local known = redis.call('HMGET', key, 's', 'f', 'l', 'k')
  if not known[1] or known[2] ~= args[2] or not string.find(args[3], known[1], 1, true) then return 0 end
  local now, fence = now_of(keys[2], args[1]), redis.call('HINCRBY', keys[2], 'f', 1)
  redis.call('HSET', key, 's', state, 'f', fence, 'e', args[5], 'r', args[6])
  redis.call('HDEL', key, 't', 'q', 'i')
  write_steps(key, args, 11)
  note(key, args[7], args[5], args[8], args[9])
  if args[10] ~= '' then redis.call('HSET', key, 'o', string.sub(args[10], 2)) end
  if state == RETRYABLE then
    redis.call('HSET', key, 'a', 0, 'y', now, 'l', known[3] or now)
    index(keys, RETRY_BAND + now)
  else
    redis.call('HDEL', key, 'l', 'b', 'd', 'k', 'y', 'v')
    drop_index(keys)
    keep_final(key, known[4])
  end
  return 1
end

-- Moves the clock of a slot (KEYS[2]) and returns the ledger's time. With ARGV[2] a clock begins at that time.
local function keep_time(keys, args)
  if args[2] and args[2] ~= '' and redis.call('HEXISTS', keys[2], 't') == 0 then
    local time = redis.call('TIME')
    local wall = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
    redis.call('HSET', keys[2], 't', args[2], 'w', wall)
  end
  return now_of(keys[2], args[1])
end

-- A write that changes nothing anybody reads: a doubtful write is before it, or never comes.
local function settle_doubt(keys, args)
  return redis.call('HINCRBY', keys[2], 'n', 1)
end

-- Only reads.
local function read_time(keys, args)
  local ticks = read_clock(keys[2], args[1])
  return ticks
end
