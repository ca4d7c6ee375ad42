/** The prompt log in the operator's hands: read and erased by key. */
import { assert, it } from "@effect/vitest"
import { Effect, Schema } from "effect"
import { escapeText } from "../../cli/terminal.ts"
import { prefixOf } from "../../src/domain/Key.ts"
import { Admin, tollgateHere } from "./inProcess.ts"
import { failsWith, json, succeeds } from "./tollgate.ts"
import { testWith } from "../support/testWith.ts"
import { sql } from "../support/sql.ts"

const newKey = Effect.fnUntraced(function* (name: string) {
  const created = yield* tollgateHere("create-key", "--tenant", "logged", "--name", name)
  succeeds(created)
  return prefixOf(created.stdout)
})

/** `count` prompts, the newest first by their number: number n is n minutes old. */
const log = Effect.fnUntraced(function* (prefix: string, count: number, answer: string) {
  yield* sql`INSERT INTO prompt_log (request_id, key_id, created_at, expires_at, endpoint, prompt, answer, truncated)
    SELECT gen_random_uuid(), k.id, now() - n * interval '1 minute', now() + interval '1 day', '/api/chat',
      'prompt ' || n, ${answer} || n, n = 2
    FROM api_keys k, generate_series(1, ${count}::int) AS n WHERE k.prefix = ${prefix}`
})

const Entries = Schema.Array(
  Schema.Struct({ prompt: Schema.String, answer: Schema.String, truncated: Schema.Boolean })
)

const shownPrompts = Effect.fnUntraced(function* (...args: ReadonlyArray<string>) {
  const shown = yield* tollgateHere("show-prompt-log", ...args, "--json")
  succeeds(shown)
  return (yield* json(Entries, shown)).map(({ prompt }) => prompt)
})

const test = testWith(it.effect, Admin)

test("when prompts are shown, then the newest of one key and no other, as many and as old as asked, and none past its retention", function* () {
  succeeds(yield* tollgateHere("create-tenant", "--name", "logged"))
  const [mine, other] = [yield* newKey("mine"), yield* newKey("other")]
  yield* log(mine, 30, "answer ")
  yield* log(other, 3, "another ")
  yield* sql`UPDATE prompt_log SET expires_at = now() - interval '1 second' WHERE prompt = 'prompt 1'`

  assert.deepStrictEqual(
    yield* shownPrompts("--key", mine),
    Array.from({ length: 20 }, (_, n) => `prompt ${n + 2}`)
  )
  assert.deepStrictEqual(yield* shownPrompts("--key", mine, "--limit", "2"), ["prompt 2", "prompt 3"])
  assert.deepStrictEqual(yield* shownPrompts("--key", mine, "--since", "3m"), ["prompt 2"])

  const text = (yield* tollgateHere("show-prompt-log", "--key", mine, "--limit", "2")).stdout
  assert.match(
    text,
    /^\d{4}-\d\d-\d\d \d\d:\d\d UTC {2}[0-9a-f-]{36} {2}\/api\/chat\n> prompt 3\nanswer 3\n\n/
  )
  assert.match(text, / {2}\(cut\)\n> prompt 2\nanswer 2\n$/)

  const none = yield* newKey("none")
  assert.include((yield* tollgateHere("show-prompt-log", "--key", none)).stdout, "nothing is logged")
  failsWith(yield* tollgateHere("show-prompt-log", "--key", "tg_000000000"), /unknown key prefix/)
  failsWith(yield* tollgateHere("show-prompt-log", "--key", mine, "--limit", "0"), /--limit must be/)
  failsWith(yield* tollgateHere("show-prompt-log", "--key", mine, "--since", "soon"), /--since must be/)
})

test("when prompts of a key are erased, then all are gone, none of another key, and the number is printed", function* () {
  succeeds(yield* tollgateHere("create-tenant", "--name", "logged"))
  const [mine, other] = [yield* newKey("mine"), yield* newKey("other")]
  // More than one batch.
  yield* log(mine, 1201, "a")
  yield* log(other, 3, "b")
  assert.strictEqual(
    (yield* tollgateHere("erase-prompt-log", "--key", mine)).stdout,
    `${mine}: 1201 logged prompts erased\n`
  )
  const again = yield* tollgateHere("erase-prompt-log", "--key", mine, "--json")
  assert.deepStrictEqual(yield* json(Schema.Struct({ erased: Schema.Int }), again), { erased: 0 })
  assert.lengthOf(yield* shownPrompts("--key", other), 3)
  failsWith(yield* tollgateHere("erase-prompt-log", "--key", "tg_000000000"), /unknown key prefix/)
})

it("when people and models wrote control characters, then the terminal does not obey them", () => {
  assert.strictEqual(
    escapeText("a\u001b[2Jb\u0007\u009b1m\u202eevil\r\n\tok"),
    String.raw`a\u001b[2Jb\u0007\u009b1m\u202eevil\u000d` + "\n\tok"
  )
})
