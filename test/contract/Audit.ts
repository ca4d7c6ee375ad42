/** What every audit owes, on memory and on Postgres alike. */
import { randomUUID, randomUUIDv7 } from "node:crypto"
import { assert } from "@effect/vitest"
import { Context, Effect, Fiber, type Layer } from "effect"
import type { Caller } from "../../src/domain/Caller.ts"
import { Audit } from "../../src/audit/Audit.ts"
import type { Usage } from "../../src/domain/Usage.ts"
import { eventually } from "../support/Gateway.ts"
import { callerOf, endOf, type Intent, intentOf, noon, refusalOf, usageOf } from "../support/records.ts"
import type { LedgerDay, SeenRow } from "../support/auditDatabase.ts"
import { queuedFor } from "../support/permits.ts"
import { inWorld } from "../support/testWith.ts"

/** Looks at what was written, past the ports. */
export class Written extends Context.Service<
  Written,
  {
    /** The store knows the key, its tenant and its account. */
    addKey(caller: Caller): Effect.Effect<void, unknown>
    row(requestId: string): Effect.Effect<SeenRow | undefined, unknown>
    hasIntent(requestId: string): Effect.Effect<boolean, unknown>
    ledger(keyId: string): Effect.Effect<ReadonlyArray<LedgerDay>, unknown>
    /** the same, summed over the rows of the log that were admitted, corrections included */
    auditSums(keyId: string): Effect.Effect<ReadonlyArray<LedgerDay>, unknown>
    /** what was added to a request's row later */
    correction(
      requestId: string
    ): Effect.Effect<
      { readonly tokens_in: number; readonly tokens_out: number; readonly status: number } | undefined,
      unknown
    >
    /** The heartbeat of an open request, now. */
    beat(requestId: string, usage: Usage): Effect.Effect<void, unknown>
    /** Another replica takes the process of an open request for dead and closes it. */
    abort(requestId: string): Effect.Effect<void, unknown>
  }
>()("test/contract/Audit/Written") {}

const day = 86_400_000

export const suite = (name: string, world: Layer.Layer<Audit | Written, unknown>) =>
  inWorld(world)(`Audit: ${name}`, (test) => {
    test("when a request is opened, then an intent is stored, and its evidence names it", function* () {
      const [audit, written] = [yield* Audit, yield* Written]
      const intent = intentOf()
      const proof = yield* audit.open(queuedFor(intent))
      assert.strictEqual(proof.link, "Audit")
      assert.strictEqual(proof.facts.arrival.requestId, intent.arrival.requestId)
      assert.isTrue(yield* written.hasIntent(intent.arrival.requestId))
      assert.isUndefined(yield* written.row(intent.arrival.requestId))
    })

    test("when open and close are repeated in any order, then each counts once", function* () {
      const [audit, written] = [yield* Audit, yield* Written]
      const intent = intentOf()
      const { requestId } = intent.arrival
      yield* Effect.all(
        [audit.open(queuedFor(intent)), audit.open(queuedFor(intent)), audit.open(queuedFor(intent))],
        {
          concurrency: 3
        }
      )
      const end = Effect.suspend(() => audit.close(endOf(intent, usageOf(7, 3))))
      yield* Effect.all([end, end, Effect.suspend(() => audit.close(endOf(intent, usageOf(7, 3))))], {
        concurrency: 3
      })
      // Late and reordered: what has ended stays as it ended.
      yield* audit.close(endOf(intent, usageOf(1000, 1000), { status: 500, errorType: "aborted" }))
      yield* audit.open(queuedFor(intent))
      audit.progress(requestId, usageOf(1, 1))
      yield* audit.refuse(endOf(intent, usageOf(5, 5), { status: 503 }))
      assert.isFalse(yield* written.hasIntent(requestId))
      assert.deepInclude(yield* written.row(requestId), { status: 200, tokens_in: 7, tokens_out: 3 })
      assert.deepStrictEqual(yield* written.ledger(intent.caller.keyId), [
        { day: "2026-11-21", requests: 1, tokensIn: 7, tokensOut: 3 }
      ])
    })

    test("when nobody waits for a completion, then it is written all the same", function* () {
      const [audit, written] = [yield* Audit, yield* Written]
      const intent = intentOf()
      yield* audit.open(queuedFor(intent))
      const closing = yield* Effect.forkChild(audit.close(endOf(intent, usageOf(2, 1))), {
        startImmediately: true
      })
      yield* Fiber.interrupt(closing)
      const row = yield* eventually(written.row(intent.arrival.requestId), (row) => row !== undefined)
      assert.deepInclude(row, { status: 200, tokens_in: 2, tokens_out: 1 })
    })

    test("when requests have ended, then the ledger is the sum of the audit for each key and UTC day of admission", function* () {
      const [audit, written] = [yield* Audit, yield* Written]
      const midnight = noon + day / 2
      const keys = [callerOf(), callerOf()] as const
      const intents = Array.from({ length: 60 }, (_, n): Intent =>
        intentOf({
          caller: keys[n % 2 === 0 ? 0 : 1],
          // Arrived before midnight, admitted around it.
          arrivedAt: midnight - 1000,
          admittedAt: midnight + (n % 3) - 1
        })
      )
      yield* Effect.forEach(intents, (intent) => audit.open(queuedFor(intent)), {
        concurrency: "unbounded",
        discard: true
      })
      yield* Effect.forEach(
        intents,
        (intent, n) => Effect.suspend(() => audit.close(endOf(intent, usageOf(n, 1)))),
        {
          concurrency: "unbounded",
          discard: true
        }
      )
      for (const { keyId } of keys) {
        const ledger = yield* written.ledger(keyId)
        assert.deepStrictEqual(
          ledger.map((entry) => [entry.day, entry.requests]),
          [
            ["2026-11-21", 10],
            ["2026-11-22", 20]
          ]
        )
        assert.deepStrictEqual(ledger, yield* written.auditSums(keyId))
      }
    })

    test("when refusals are tallied, then one row stands for all of a sender's, and none is in the ledger", function* () {
      const [audit, written] = [yield* Audit, yield* Written]
      const caller = callerOf()
      const more = { caller, status: 429, errorType: "rate_limit_exceeded" }
      const records = Array.from({ length: 50 }, () => refusalOf(more))
      const strangers = Array.from({ length: 20 }, () => refusalOf({ status: 499 }))
      yield* Effect.forEach([...records, ...strangers], audit.tally, { discard: true })
      const alone = refusalOf(more)
      yield* audit.refuse(alone)
      const rowOf = (first: string | undefined) =>
        eventually(written.row(first ?? ""), (row) => row !== undefined)
      assert.deepInclude(yield* rowOf(records[0]?.arrival.requestId), {
        repeats: 50,
        status: 429,
        error_type: "rate_limit_exceeded",
        key_id: caller.keyId,
        tokens_in: 0
      })
      assert.deepInclude(yield* rowOf(strangers[0]?.arrival.requestId), {
        repeats: 20,
        status: 499,
        key_id: null
      })
      assert.deepInclude(yield* rowOf(alone.arrival.requestId), { repeats: 1 })
      for (const { arrival } of [...records, ...strangers].filter((_, n) => n !== 0 && n !== 50))
        assert.isUndefined(yield* written.row(arrival.requestId))
      assert.deepStrictEqual(yield* written.ledger(caller.keyId), [])
      assert.deepStrictEqual(yield* written.auditSums(caller.keyId), [])
    })

    test("when a request is refused, with or without a caller, then a row is written and nothing in the ledger", function* () {
      const [audit, written] = [yield* Audit, yield* Written]
      const caller = callerOf()
      const [known, unknown] = [refusalOf({ caller, status: 429, errorType: "budget_exceeded" }), refusalOf()]
      yield* Effect.all([audit.refuse(known), audit.refuse(known), audit.refuse(unknown)])
      assert.deepInclude(yield* written.row(known.arrival.requestId), {
        status: 429,
        error_type: "budget_exceeded",
        key_id: caller.keyId,
        tokens_in: 0
      })
      assert.deepInclude(yield* written.row(unknown.arrival.requestId), {
        status: 401,
        key_id: null,
        model: null
      })
      assert.deepStrictEqual(yield* written.ledger(caller.keyId), [])
    })

    test("when a client did not wait for its intent, then the refusal takes the intent away", function* () {
      const [audit, written] = [yield* Audit, yield* Written]
      const intent = intentOf()
      yield* audit.open(queuedFor(intent))
      yield* audit.refuse(endOf(intent, usageOf(0, 0), { status: 499, errorType: "client_closed_request" }))
      assert.isFalse(yield* written.hasIntent(intent.arrival.requestId))
      assert.deepInclude(yield* written.row(intent.arrival.requestId), { status: 499 })
      yield* audit.open(queuedFor(intent))
      assert.isFalse(yield* written.hasIntent(intent.arrival.requestId), "what has ended is not opened")
    })

    test("when a client or a backend sends hostile text, then its row and its neighbours are written", function* () {
      const [audit, written] = [yield* Audit, yield* Written]
      const evil = [
        "\u0000",
        "a\u0000b",
        "\ud800",
        "\udfff\ud800x",
        "\u001b[31m\n\r\t\u0085",
        "x".repeat(100_000),
        "\u{1f4a9}".repeat(100),
        `'; DROP TABLE audit_log; --`,
        `{"request_id":"x"}`,
        "\\u0000"
      ]
      const counts = [Number.NaN, -5, 1.5, Number.POSITIVE_INFINITY, 2 ** 60, Number.NEGATIVE_INFINITY]
      const records = evil.flatMap((text) => {
        const intent = intentOf()
        const arrival = {
          ...intent.arrival,
          requestId: randomUUIDv7(),
          method: text,
          endpoint: text,
          clientIp: text,
          clientRequestId: text
        }
        return [
          refusalOf({
            arrival,
            model: text,
            alias: text,
            endUser: text,
            caller: { ...callerOf(), tenantName: text }
          }),
          refusalOf({ arrival: { ...arrival, requestId: randomUUIDv7() }, model: text })
        ]
      })
      yield* Effect.forEach(records, audit.refuse, { concurrency: "unbounded", discard: true })
      for (const { arrival } of records) {
        const row = yield* written.row(arrival.requestId)
        assert.isDefined(row)
        assert.notMatch(
          `${row?.model}${row?.endpoint}${row?.client_request_id}${row?.alias}${row?.end_user}`,
          /\p{Cc}/u
        )
        for (const column of [row?.model, row?.alias, row?.end_user])
          assert.isAtMost(column?.length ?? 0, 128)
        assert.isAtMost(row?.client_request_id?.length ?? 0, 64)
        assert.isAtMost(row?.endpoint.length ?? 0, 256)
      }
      for (const count of counts) {
        const intent = intentOf({ promptEstimate: count, held: count })
        yield* audit.open(queuedFor(intent))
        audit.progress(intent.arrival.requestId, usageOf(count, count))
        yield* audit.close(endOf(intent, usageOf(count, count), { latencyMs: count }))
        const row = yield* written.row(intent.arrival.requestId)
        assert.isTrue(Number.isSafeInteger(row?.tokens_in) && (row?.tokens_in ?? -1) >= 0, String(count))
        assert.isAtMost(row?.latency_ms ?? -1, 2_147_483_647)
      }
    })

    for (const [what, used, difference] of [
      ["more", usageOf(7, 40), { tokens_in: 2, tokens_out: 30 }],
      ["less", usageOf(1, 12), { tokens_in: -4, tokens_out: 2 }],
      ["nothing", usageOf(0, 0), { tokens_in: -5, tokens_out: -10 }],
      ["the same", usageOf(5, 10), { tokens_in: 0, tokens_out: 0 }]
    ] as const) {
      test(`when a request that another replica has closed ends after all and used ${what}, then the row stays and is corrected once`, function* () {
        const [audit, written] = [yield* Audit, yield* Written]
        const caller = callerOf(randomUUID())
        const [paused, neighbour] = [intentOf({ caller }), intentOf({ caller })]
        const { requestId } = paused.arrival
        yield* audit.open(queuedFor(paused))
        yield* audit.open(queuedFor(neighbour))
        yield* audit.close(endOf(neighbour, usageOf(1, 2)))
        audit.progress(requestId, usageOf(5, 10))
        yield* written.beat(requestId, usageOf(5, 10))
        yield* written.abort(requestId)
        const aborted = yield* written.row(requestId)
        assert.deepInclude(aborted, { status: 500, error_type: "aborted", tokens_in: 5, tokens_out: 10 })
        const end = Effect.suspend(() => audit.close(endOf(paused, used)))
        yield* Effect.all([end, end], { concurrency: 2 })
        yield* audit.close(endOf(paused, usageOf(900, 900)))
        assert.deepStrictEqual(yield* written.row(requestId), aborted)
        assert.deepStrictEqual({ ...(yield* written.correction(requestId)) }, { ...difference, status: 200 })
        assert.isUndefined(yield* written.correction(neighbour.arrival.requestId))
        const sums = yield* written.auditSums(caller.keyId)
        assert.deepInclude(sums[0], {
          requests: 2,
          tokensIn: 1 + used.tokensIn,
          tokensOut: 2 + used.tokensOut
        })
        assert.deepStrictEqual(yield* written.ledger(caller.keyId), sums)
      })
    }

    test("when another replica has closed a request that its own process refuses, then the row is corrected to the refusal", function* () {
      const [audit, written] = [yield* Audit, yield* Written]
      const caller = callerOf(randomUUID())
      const intent = intentOf({ caller, promptEstimate: 9 })
      const { requestId } = intent.arrival
      yield* audit.open(queuedFor(intent))
      yield* written.abort(requestId)
      assert.deepInclude(yield* written.row(requestId), { status: 500, tokens_in: 9, tokens_out: 0 })
      const refusal = endOf(intent, usageOf(0, 0), { status: 503, errorType: "service_unavailable" })
      yield* audit.refuse(refusal)
      yield* audit.refuse(refusal)
      const correction = yield* eventually(written.correction(requestId), (one) => one !== undefined)
      assert.deepStrictEqual({ ...correction }, { tokens_in: -9, tokens_out: 0, status: 503 })
      const sums = yield* written.auditSums(caller.keyId)
      assert.deepInclude(sums[0], { requests: 1, tokensIn: 0, tokensOut: 0 })
      assert.deepStrictEqual(yield* written.ledger(caller.keyId), sums)
    })

    test("when a request names its user and an alias, then its row has both, also when another replica closes it", function* () {
      const [audit, written] = [yield* Audit, yield* Written]
      const names = { alias: "fast", endUser: "ann@example.org" }
      const columns = { alias: "fast", end_user: "ann@example.org", model: "m:latest" }
      const [ended, died] = [intentOf(names), intentOf(names)]
      yield* Effect.forEach([ended, died], (intent) => audit.open(queuedFor(intent)))
      yield* audit.close(endOf(ended, usageOf(1, 2), { truncated: true }))
      yield* written.abort(died.arrival.requestId)
      assert.deepInclude(yield* written.row(ended.arrival.requestId), { ...columns, truncated: true })
      assert.deepInclude(yield* written.row(died.arrival.requestId), { ...columns, truncated: null })
      const unnamed = refusalOf()
      yield* audit.refuse(unnamed)
      const none = { alias: null, end_user: null, truncated: null }
      assert.deepInclude(yield* written.row(unnamed.arrival.requestId), none)
    })
  })
