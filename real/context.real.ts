/**
 * The `context` of /api/generate over several turns: the gateway seals it, and the model still gets the same tokens as from
 * a client that talks to the server itself.
 */
import { assert, layer } from "@effect/vitest"
import { Effect, Schema } from "effect"
import { openContext } from "../src/http/dialect/native/sealedContext.ts"
import { call, eventually, newKey } from "../test/support/Gateway.ts"
import { layerOwnGateway } from "./RealGateway.ts"
import { OwnOllama } from "./RealOllama.ts"
import { testWith } from "../test/support/testWith.ts"
import { sql } from "../test/support/sql.ts"

const Turn = Schema.fromJsonString(
  Schema.Struct({
    response: Schema.String,
    prompt_eval_count: Schema.Int,
    eval_count: Schema.Int,
    context: Schema.Array(Schema.Int)
  })
)
const readTurn = Schema.decodeUnknownEffect(Turn)

/** Turns of one conversation with a model whose system prompt, template and examples are secret. */
const prompts = ["Hello there", "größer 漢字 🙂", "and then?", "  goodbye "]
const turn = (
  prompt: string,
  context: ReadonlyArray<number>,
  more: Readonly<Record<string, unknown>> = {}
) => ({
  model: "tiny",
  prompt,
  stream: false,
  ...(context.length === 0 ? {} : { context }),
  options: { seed: 7, temperature: 0, num_predict: 12 },
  ...more
})

const direct = Effect.fnUntraced(function* (body: unknown) {
  const { url } = yield* OwnOllama
  const text = yield* Effect.promise((signal) =>
    fetch(new URL("/api/generate", url), { method: "POST", body: JSON.stringify(body), signal }).then(
      (answer) => answer.text()
    )
  )
  return yield* readTurn(text)
})

/** The key's id and the secret, to open what the gateway sealed. */
const sealing = Effect.fnUntraced(function* (prefix: string) {
  const rows = yield* sql<{ readonly id: string; readonly hex: string }>`
    SELECT k.id::text AS id, encode(s.secret, 'hex') AS hex FROM api_keys k, sealing_secrets s
    WHERE k.prefix = ${prefix} AND s.purpose = 'context'`
  const [row] = rows
  if (row === undefined) return assert.fail("no such key")
  return { keyId: row.id, secret: Buffer.from(row.hex, "hex") }
})

const generate = (secret: string, body: unknown) => call("/api/generate", { secret, body })

const sealedTurn = Effect.fnUntraced(function* (secret: string, body: unknown) {
  const answer = yield* generate(secret, body)
  assert.strictEqual(answer.status, 200, answer.text)
  assert.notInclude(answer.text, "SECRET")
  return yield* readTurn(answer.text)
})

/** A number in a list, changed. */
const changed = (list: ReadonlyArray<number>, at: number): ReadonlyArray<number> =>
  list.map((value, i) => (i === at ? value ^ 1 : value))

/** Whether four numbers of `inner` follow each other in `outer`, as tokens of a text would. */
const shares = (outer: ReadonlyArray<number>, inner: ReadonlyArray<number>): boolean => {
  const runs = (list: ReadonlyArray<number>) =>
    Array.from({ length: Math.max(0, list.length - 3) }, (_, i) => list.slice(i, i + 4).join())
  const known = new Set(runs(inner))
  return runs(outer).some((run) => known.has(run))
}

const bytesOf = (numbers: ReadonlyArray<number>): Buffer =>
  Buffer.concat(numbers.map((value) => Buffer.from([value >>> 16, (value >>> 8) & 0xff, value & 0xff])))

layer(layerOwnGateway(), { excludeTestServices: true, timeout: 600_000 })(
  "a conversation by context",
  (it) => {
    const test = testWith(it.effect)

    test("when it goes on for four turns, then the model gets the tokens it gets without the gateway", function* () {
      const { prefix, secret } = yield* newKey()
      const owner = yield* sealing(prefix)
      let [theirs, ours]: [ReadonlyArray<number>, ReadonlyArray<number>] = [[], []]
      const read: Array<number> = []
      for (const prompt of prompts) {
        const server = yield* direct(turn(prompt, theirs))
        const gateway = yield* sealedTurn(secret, turn(prompt, ours))
        assert.deepStrictEqual(
          [gateway.response, gateway.prompt_eval_count, gateway.eval_count],
          [server.response, server.prompt_eval_count, server.eval_count]
        )
        assert.deepStrictEqual(openContext(owner.secret, owner.keyId, gateway.context)?.ids, server.context)
        assert.isFalse(
          shares(gateway.context, server.context),
          "tokens of the prompt stand in the sealed context"
        )
        assert.notInclude(bytesOf(gateway.context).toString("latin1"), "SECRET")
        ;[theirs, ours] = [server.context, gateway.context]
        read.push(server.prompt_eval_count)
      }
      // Each turn reads what came before it: the counts grow, and a turn without a context reads less than the last one.
      assert.deepStrictEqual(
        read,
        [...read].sort((a, b) => a - b)
      )
      const alone = yield* sealedTurn(secret, turn(prompts.at(-1) ?? "", []))
      assert.isBelow(alone.prompt_eval_count, read.at(-1) ?? 0)
    })

    test("when an answer is streamed, then only its last line has a context, and it goes on from there", function* () {
      const { secret } = yield* newKey()
      const answer = yield* generate(secret, turn("Hello", [], { stream: true }))
      const lines = answer.text.trimEnd().split("\n")
      assert.deepStrictEqual(
        lines.map((line) => line.includes('"context"')),
        lines.map((_, i) => i === lines.length - 1)
      )
      assert.notInclude(answer.text, "SECRET")
      const { context } = JSON.parse(lines.at(-1) ?? "")
      const first = yield* direct(turn("Hello", []))
      const [server, gateway] = [
        yield* direct(turn("more", first.context)),
        yield* sealedTurn(secret, turn("more", context))
      ]
      assert.strictEqual(gateway.prompt_eval_count, server.prompt_eval_count)
    })

    test("when the context is of another key, another model or changed, then it is a 400 that says so", function* () {
      const [mine, other] = [yield* newKey(), yield* newKey()]
      const { context } = yield* sealedTurn(mine.secret, turn("Hello", []))
      const again = yield* sealedTurn(mine.secret, turn("Hello", []))
      assert.notDeepEqual(again.context, context, "the same tokens are sealed anew each time")
      const open = yield* direct(turn("Hello", []))
      const wrong = {
        "of another key": yield* generate(other.secret, turn("x", context)),
        "of another model": yield* generate(mine.secret, turn("x", context, { model: "plain" })),
        "of another model with the same weights": yield* generate(
          mine.secret,
          turn("x", context, { model: "tools" })
        ),
        "not sealed": yield* generate(mine.secret, turn("x", open.context)),
        "cut short": yield* generate(mine.secret, turn("x", context.slice(0, -1))),
        "its length changed": yield* generate(mine.secret, turn("x", changed(context, 0))),
        "its middle changed": yield* generate(
          mine.secret,
          turn("x", changed(context, Math.floor(context.length / 2)))
        ),
        "its end changed": yield* generate(mine.secret, turn("x", changed(context, context.length - 1)))
      }
      for (const [what, { status, text }] of Object.entries(wrong)) {
        assert.strictEqual(status, 400, `${what}: ${text}`)
        assert.include(text, "context: expected", what)
        assert.notInclude(text, "SECRET", what)
      }
      yield* sealedTurn(mine.secret, turn("x", context))
    })

    test("when the model is made anew, then a context of the one before is a 400", function* () {
      const { secret } = yield* newKey()
      const { url } = yield* OwnOllama
      const create = (system: string) =>
        Effect.promise((signal) =>
          fetch(new URL("/api/create", url), {
            method: "POST",
            body: JSON.stringify({ model: "renewed", from: "plain", system, stream: false }),
            signal
          }).then((answer) => answer.text())
        )
      const ask = (context: ReadonlyArray<number>) =>
        generate(secret, turn("x", context, { model: "renewed" }))
      /** Discovery asks once a second. */
      const until = (context: ReadonlyArray<number>, wanted: number) =>
        Effect.tap(
          eventually(ask(context), ({ status }) => status === wanted, 15_000),
          ({ status, text }) => Effect.sync(() => assert.strictEqual(status, wanted, text))
        )
      yield* create("one")
      const { context } = yield* readTurn((yield* until([], 200)).text)
      yield* create("two")
      const refused = yield* until(context, 400)
      assert.include(refused.text, "context: expected one of this model")
      assert.strictEqual((yield* ask([])).status, 200)
    })
  }
)
