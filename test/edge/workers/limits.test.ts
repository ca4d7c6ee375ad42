/** Limits, budgets and metrics of a gateway with two workers: as exact as those of one. */
import * as PgClient from "@effect/sql-pg/PgClient"
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { fake as line } from "../../support/FakeBackend.ts"
import { eventually, Fake, hello } from "../../support/Gateway.ts"
import { settledBooks } from "../../support/books.ts"
import { figure, get, makeKey, post, startGateway, world } from "./support.ts"

const statuses = (answers: ReadonlyArray<{ readonly status: number }>, status: number): number =>
  answers.filter((answer) => answer.status === status).length

layer(world, { excludeTestServices: true, timeout: 120_000 })("a gateway with two workers", (it) => {
  it.effect(
    "when both workers serve one key, then limits and budget are exact, and the metrics are the sums of the audit",
    () =>
      Effect.gen(function* () {
        const [pg, fake] = [yield* PgClient.PgClient, yield* Fake]
        const gateway = yield* startGateway()
        const { url } = gateway
        assert.strictEqual(gateway.workers().length, 2)
        const raced = (secret: string, count: number, body: object = hello()) =>
          Effect.promise(() => Promise.all(Array.from({ length: count }, () => post(url, secret, body))))

        // Each worker has to know the model first.
        const warm = yield* makeKey()
        for (let i = 0; i < 6; i += 1) {
          yield* eventually(
            Effect.promise(() => post(url, warm.secret)),
            ({ status }) => status === 200
          )
        }

        const rpm = yield* makeKey({ rpm: 30 })
        const many = yield* raced(rpm.secret, 100)
        assert.deepStrictEqual([statuses(many, 200), statuses(many, 429)], [30, 70])

        const slots = yield* makeKey({ concurrent: 3 })
        const words = [
          ...Array.from({ length: 20 }, (_, i) => line.chat(` ${i}`)),
          line.done("chat", { eval_count: 20 })
        ]
        for (let i = 0; i < 3; i += 1) fake.script({ does: "stream", lines: words, gapMs: 100 })
        const atOnce = yield* raced(slots.secret, 30)
        assert.deepStrictEqual([statuses(atOnce, 200), statuses(atOnce, 429)], [3, 27])

        // 10 tokens of the prompt, as the gateway estimates it, and 3 of the answer: what a request holds is what it costs.
        const costly = {
          does: "stream",
          lines: [line.chat("a"), line.done("chat", { prompt_eval_count: 10, eval_count: 3 })]
        } as const
        yield* Effect.acquireRelease(
          Effect.sync(() => fake.always(costly)),
          () => Effect.sync(() => fake.always(undefined))
        )
        const budget = yield* makeKey({}, 40 * 13)
        const spent = yield* raced(budget.secret, 100, hello({ options: { num_predict: 3 } }))
        assert.deepStrictEqual([statuses(spent, 200), statuses(spent, 429)], [40, 60])
        const [sum] = yield* pg<{ readonly n: number }>`
        SELECT coalesce(sum(tokens_in + tokens_out), 0)::float8 AS n FROM audit_log WHERE key_prefix = ${budget.prefix}`
        assert.strictEqual(sum?.n, 40 * 13)
        assert.deepInclude(yield* settledBooks(20), { difference: 0, open: 0 })

        const counted = yield* pg<{ readonly tenant: string; readonly n: number }>`
        SELECT t.name AS tenant, sum(a.repeats)::float8 AS n
        FROM audit_log a JOIN tenants t ON t.id = a.tenant_id GROUP BY 1`
        const text = (yield* Effect.promise(() => get(url, "/metrics"))).text
        // Not those of an earlier try, which another gateway served.
        const own = new Set([warm, rpm, slots, budget].map(({ tenant }) => tenant))
        for (const { n, tenant } of counted.filter(({ tenant }) => own.has(tenant))) {
          assert.strictEqual(figure(text, "gateway_requests_total", `tenant="${tenant}"`), n, tenant)
        }
        assert.strictEqual(figure(text, "tollgate_workers"), 2)
        assert.strictEqual(figure(text, "tollgate_ready"), 3, "of each dependency the least")
        assert.notMatch(text, /NaN/)
        // The last scrape went to the one worker, this one goes to the other.
        const again = (yield* Effect.promise(() => get(url, "/metrics"))).text
        assert.strictEqual(figure(again, "gateway_requests_total"), figure(text, "gateway_requests_total"))
      }).pipe(Effect.scoped),
    90_000
  )

  it.effect(
    "when clients keep their connections, then each worker has as many, and nothing of an answer names its worker",
    () =>
      Effect.gen(function* () {
        const gateway = yield* startGateway()
        const { secret } = yield* makeKey()
        const answers = yield* Effect.promise(() =>
          Promise.all(Array.from({ length: 20 }, () => post(gateway.url, secret)))
        )
        const names = new Set(answers.flatMap(({ headers }) => Object.keys(headers)))
        assert.isFalse([...names].some((name) => name.includes("worker")))
        const ids = new Set(answers.map(({ id }) => id.slice(-7)))
        assert.strictEqual(ids.size, answers.length, "the mark of an id differs with each id")
      }).pipe(Effect.scoped),
    90_000
  )
})
