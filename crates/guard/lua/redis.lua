-- The guard of data in Redis 6 and later, for services in any language: compares the mark, and sets
-- mark and data, as one script, which Redis runs alone.
--
--   KEYS[1]   the mark: {TAG}:ringfence-mark:LEASE
--   KEYS[2..] the key of each change, all with the same hash tag
--   ARGV[1]   the token in 19 digits, zeros in front: 0000000000000000042
--   ARGV[2]   'admit'; 'judged', which is the same without TOKEN_TOO_HIGH, for a caller that has
--             looked at its own clock, or whose tokens do not follow the clock; or 'floor' to raise
--             the mark, without changes, where a smaller token is no mistake
--   ARGV[3..] for each change: the command, the number of its further arguments, and these
--
-- It answers the replies of the changes, or an error whose first word is one of
--
--   STALE_TOKEN      mark=N: a later grant has been here: stop the work, the lease is lost
--   TOKEN_TOO_HIGH   ceiling=N: the token is above (now + 1 day) * 2^20, with this server's clock in
--                    seconds since 1970, and above the mark: it was made up, or the clock is more
--                    than a day behind. It does not say that the lease is lost
--   MALFORMED_FENCE  ARGV[1] is no token
--   DAMAGED_MARK     something else has written the mark
--   MARK_IS_NO_DATA  a change names the mark, as its key or as an argument
--   MALFORMED_CALL   ARGV[2] is another word, or 'floor' comes with changes
--
-- after which nothing was changed. An error of a change itself (WRONGTYPE and the like) leaves the
-- changes before it in place: Redis does not roll back.

local offered = ARGV[1]

-- Whom a floor lets through was not compared with the mark.
if ARGV[2] ~= 'admit' and ARGV[2] ~= 'judged' and (ARGV[2] ~= 'floor' or #KEYS > 1) then
  return redis.error_reply("MALFORMED_CALL ARGV[2] is 'admit' or 'judged', or 'floor' without changes")
end
-- DEL, RENAME and the like take further keys, and would take the mark away.
for at = 2, #KEYS do
  if KEYS[at] == KEYS[1] then
    return redis.error_reply('MARK_IS_NO_DATA ' .. KEYS[1])
  end
end
for at = 3, #ARGV do
  if ARGV[at] == KEYS[1] then
    return redis.error_reply('MARK_IS_NO_DATA ' .. KEYS[1])
  end
end

local mark = redis.call('GET', KEYS[1])

-- Only a token gets in there, so an equal mark needs no further look, and no write: nobody runs
-- between this check and what follows.
if mark ~= offered then
  local DIGITS = 19
  local MAX = '9223372036854775807'

  -- Lua's numbers are doubles, exact to 2^53; so two halves of a token are compared one by one.
  local function newer(a, b)
    local a_high, b_high = tonumber(string.sub(a, 1, 10)), tonumber(string.sub(b, 1, 10))
    if a_high ~= b_high then
      return a_high > b_high
    end
    return tonumber(string.sub(a, 11)) > tonumber(string.sub(b, 11))
  end

  local function is_token(text)
    return #text == DIGITS and not string.find(text, '%D') and string.find(text, '[1-9]')
      and not newer(text, MAX)
  end

  if not is_token(offered) then
    return redis.error_reply('MALFORMED_FENCE a token is 1 to ' .. MAX .. ' in 19 digits')
  end
  if mark and not is_token(mark) then
    return redis.error_reply('DAMAGED_MARK delete ' .. KEYS[1] .. ' and advance it to the floor')
  end
  if not mark or newer(offered, mark) then
    if ARGV[2] == 'admit' then
      -- Below 2^53, and so exact, until the year 2242.
      local now = tonumber(redis.call('TIME')[1])
      local ceiling = string.format('%019.0f', (now + 86400) * 1048576)
      if newer(offered, ceiling) then
        return redis.error_reply('TOKEN_TOO_HIGH ceiling=' .. ceiling)
      end
    end
    redis.call('SET', KEYS[1], offered)
  elseif ARGV[2] ~= 'floor' then
    return redis.error_reply('STALE_TOKEN mark=' .. mark)
  end
end

local replies = {}
local at = 3
for change = 2, #KEYS do
  local count = tonumber(ARGV[at + 1])
  local last = at + 1 + count
  replies[change - 1] = redis.call(ARGV[at], KEYS[change], unpack(ARGV, at + 2, last))
  at = last + 1
end
return replies
