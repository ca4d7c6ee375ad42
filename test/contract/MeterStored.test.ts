/** How an account is stored in Redis: versions that run side by side read it. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { Meter } from "../../src/gates/meter/Meter.ts"
import { alone, command, left } from "../support/PrivateMeter.ts"
import { ask, claimsOf, granted } from "./Meter.ts"

/** Stores an account as cmsgpack packs it, with a group of 1 request and 10 tokens for each of the last half seconds. */
const storeAccount = `
local time = redis.call('TIME')
local now, requests, tokens = time[1] * 1000 + math.floor(time[2] / 1000), '', ''
for i = tonumber(ARGV[1]) - 1, 0, -1 do
  requests = requests .. struct.pack('<I6I7', now - i * 500, 1)
  tokens = tokens .. struct.pack('<I6I7', now - i * 500, 10)
end
local account = {now, 0, 0, 9007199254740991, now + 200000, 1, requests, tokens, #requests / 13, #tokens / 13 * 10}
return redis.call('HSET', KEYS[1], 'w', cmsgpack.pack(account))`

/** The length of the array, the sums of the groups, and the sums that are stored beside them. */
const readAccount = `
local account, sums = cmsgpack.unpack(redis.call('HGET', KEYS[1], 'w')), {0, 0}
for i = 1, 2 do
  for from = 1, #account[6 + i], 13 do sums[i] = sums[i] + select(2, struct.unpack('<I6I7', account[6 + i], from)) end
end
return {#account, sums[1], sums[2], account[9], account[10]}`

it.live("when versions run side by side, then each reads what the other has stored of an account", () =>
  Effect.gen(function* () {
    const meter = yield* Meter
    // cmsgpack writes the length of a text in three ways.
    for (const groups of [0, 1, 2, 3, 19, 20, 100]) {
      const claims = claimsOf({ rpm: 1000, tpm: 10_000 }, { group: "g", key: `k${groups}` })
      const account = `tollgate:{g}:k${groups}:windows`
      yield* command("EVAL", storeAccount, "1", account, String(groups))
      const { requests, tokens } = yield* left(claims)
      assert.deepStrictEqual(
        [requests.remaining, tokens.remaining],
        [1000 - groups, 10_000 - groups * 10],
        account
      )
      const { reservation } = granted(yield* meter.reserve(claims, ask(`r${groups}`, 50)))
      yield* meter.settle(reservation, 7)
      const [sumOfRequests, sumOfTokens] = [groups + 1, groups * 10 + 7]
      assert.deepStrictEqual(
        yield* command("EVAL", readAccount, "1", account),
        [10, sumOfRequests, sumOfTokens, sumOfRequests, sumOfTokens],
        account
      )
    }
  }).pipe(Effect.provide(alone()))
)
