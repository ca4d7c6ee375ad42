/** Settings that are typed, pasted and generated: each is taken or refused in one line a problem, and none is repeated. */
import { assert, it } from "@effect/vitest"
import { Redacted, Result } from "effect"
import { describeProblem, readSettings, table, variablesOf } from "../../src/Settings.ts"
import { Random } from "./Random.ts"
import { full, seed, tell } from "./run.ts"

const marker = "hidden-word"
const samples = [
  "",
  " ",
  "0",
  "1",
  "-1",
  "8080",
  "65536",
  "1e3",
  "0x10",
  "1.5",
  "NaN",
  "Infinity",
  "99999999999999999999",
  "true",
  "TRUE",
  "yes",
  "null",
  "undefined",
  "[]",
  "{}",
  "__proto__",
  "constructor",
  "127.0.0.1",
  "::1",
  "[::1]",
  "localhost",
  "10.0.0.0/8",
  "10.0.0.0/-1",
  "::/129",
  "10.0.0.0/8,,::1",
  "tg_",
  "TG_",
  "t__",
  "\u0000",
  "\n",
  "\u202e",
  "😀",
  "\ud800",
  `postgres://u:${marker}@h/d`,
  `postgres://${marker}`,
  `postgres:${marker}`,
  `mysql://u:${marker}@h/d`,
  `redis://:${marker}@h:6379/0`,
  `rediss://h,redis://:${marker}@h`,
  `http://u:${marker}@h`,
  `http://h/${marker}`,
  `http://h?${marker}`,
  `https://${marker}:99999`,
  `file:///${marker}`,
  `javascript:${marker}`,
  "http://",
  "http:///",
  "info",
  "INFO",
  "trace,debug",
  `${marker}\n${marker}`
] as const

const names = [...Object.values(table).flatMap(variablesOf), "NODE_ENV"]

const mutated = (random: Random): string => {
  const text = random.pick(samples)
  switch (random.int(5)) {
    case 0:
      return text + random.pick(samples)
    case 1:
      return text.slice(0, random.int(text.length + 1))
    case 2:
      return text.slice(0, random.int(text.length + 1)) + String.fromCharCode(random.int(0x10000)) + text
    default:
      return text
  }
}

it(
  "when the environment is random, then it is read, or each problem is a line that repeats no value",
  () => {
    const random = new Random(seed)
    const count = full ? 300_000 : 30_000
    let taken = 0
    for (let n = 0; n < count; n += 1) {
      const env: Record<string, string> = {}
      for (let k = 1 + random.int(6); k > 0; k -= 1) {
        const name = names[random.int(names.length)] ?? "PORT"
        env[name] = name === "NODE_ENV" && random.chance(2) ? "production" : mutated(random)
      }
      const read = readSettings(env)
      const given = () => JSON.stringify(env)
      if (Result.isSuccess(read)) {
        taken += 1
        const { databaseUrl, redisUrl, ...shown } = read.success
        for (const secret of [databaseUrl, redisUrl])
          assert.notInclude(
            secret === undefined ? "" : `${String(secret)}${JSON.stringify(secret)}`,
            marker,
            given()
          )
        for (const value of Object.values(shown)) {
          if (typeof value === "number") assert.isTrue(Number.isSafeInteger(value), given())
          assert.isFalse(Redacted.isRedacted(value), given())
        }
        continue
      }
      assert.isNotEmpty(read.failure)
      const lines = read.failure.map(describeProblem)
      assert.strictEqual(new Set(lines).size, lines.length, given())
      for (const [index, line] of lines.entries()) {
        assert.oneOf(read.failure[index]?.setting, names, given())
        assert.notMatch(line, /[\p{Cc}\p{Cs}\p{Bidi_Control}]/u, given())
        assert.notInclude(line, marker, given())
        assert.isBelow(line.length, 300, given())
      }
    }
    tell(`${count} environments, ${taken} taken`)
    assert.isAbove(taken, count / 100)
  },
  full ? 600_000 : 60_000
)
