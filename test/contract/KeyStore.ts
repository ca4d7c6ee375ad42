/** What every key store owes, on memory and on Postgres alike. */
import { assert } from "@effect/vitest"
import { Context, Effect, type Layer } from "effect"
import type { Budgets, EffectiveLimits } from "../../src/domain/Limits.ts"
import { mintKey, prefixOf } from "../../src/domain/Key.ts"
import { KeyStore } from "../../src/gates/keys/KeyStore.ts"
import { atMost, eventually, makeStopwatch } from "../support/wait.ts"
import { inWorld } from "../support/testWith.ts"

/** Whoever administers the keys, and can take the database away. */
export class World extends Context.Service<
  World,
  {
    /** A key of a tenant of its own with rpm 60, tpm 1000, concurrent 4 and the model `m:1`. */
    readonly addKey: (options?: {
      readonly scopes?: ReadonlyArray<"chat" | "embeddings">
      readonly limits?: Partial<EffectiveLimits>
      readonly budgets?: Budgets
      readonly tenantBudgets?: Budgets
    }) => Effect.Effect<string>
    readonly revoke: (prefix: string) => Effect.Effect<void>
    readonly setKeyEnabled: (prefix: string, enabled: boolean) => Effect.Effect<void>
    readonly setTenantEnabled: (prefix: string, enabled: boolean) => Effect.Effect<void>
    readonly expire: (prefix: string) => Effect.Effect<void>
    readonly setRpm: (prefix: string, rpm: number) => Effect.Effect<void>
    readonly setDown: (down: boolean) => Effect.Effect<void>
  }
>()("test/contract/KeyStore/World") {}

type Outcome = "Unauthorized" | "Unavailable" | "ok"

export const outcomeOf = (secret: string | undefined): Effect.Effect<Outcome, never, KeyStore> =>
  KeyStore.pipe(
    Effect.flatMap((store) => store.verify(secret)),
    Effect.match({ onFailure: (error): Outcome => error._tag, onSuccess: (): Outcome => "ok" })
  )

/** A change of a key is in force within about a second. */
const aboutASecondMs = 1500

/** Waits until `probe` answers `expected`, and tells how long that took. */
export const becomes = <A, R>(probe: Effect.Effect<A, never, R>, expected: A, withinMs = aboutASecondMs) =>
  Effect.gen(function* () {
    const startedAt = makeStopwatch()
    const answer = yield* eventually(probe, (one) => one === expected)
    const tookMs = startedAt()
    assert.strictEqual<unknown>(answer, expected)
    assert.isAtMost(tookMs, atMost(withinMs))
    return tookMs
  })

const otherTail = (secret: string): string => prefixOf(secret) + mintKey("tg_").slice(-32)

export const suite = (name: string, world: Layer.Layer<World | KeyStore, unknown>) =>
  inWorld(world)(`KeyStore: ${name}`, (test) => {
    test("when a key is valid, then its caller has the inherited limits, budgets, scopes and models", function* () {
      const { addKey } = yield* World
      const secret = yield* addKey({
        scopes: ["embeddings"],
        limits: { tpm: 7 },
        budgets: { day: 0, total: Number.MAX_SAFE_INTEGER },
        tenantBudgets: { month: 7 }
      })
      const store = yield* KeyStore
      const {
        link,
        facts: { caller: value }
      } = yield* store.verify(secret)
      assert.strictEqual(link, "KeyStore")
      assert.strictEqual(value.keyPrefix, prefixOf(secret))
      assert.deepStrictEqual(value.limits, { rpm: 60, tpm: 7, concurrent: 4 })
      assert.deepStrictEqual(value.budgets, { day: 0, total: Number.MAX_SAFE_INTEGER })
      assert.deepStrictEqual(value.tenantBudgets, { month: 7 })
      assert.strictEqual(value.accountId, value.keyId)
      assert.deepStrictEqual([...value.scopes], ["embeddings"])
      assert.deepStrictEqual(value.models, new Set(["m:1"]))
      assert.deepStrictEqual([value.weight, value.priority], [1, "interactive"])
      assert.notProperty(value, "promptLogDays")
    })

    test("when a secret is wrong, then it is refused before, between and after right ones", function* () {
      const { addKey } = yield* World
      const secret = yield* addKey()
      const wrong = otherTail(secret)
      const answers = yield* Effect.forEach(
        [wrong, secret, wrong, secret, otherTail(secret), secret],
        outcomeOf
      )
      assert.deepStrictEqual(answers, ["Unauthorized", "ok", "Unauthorized", "ok", "Unauthorized", "ok"])
    })

    test("when a prefix is unknown, or a text is no key, then it is refused", function* () {
      const { addKey } = yield* World
      const secret = yield* addKey()
      const shapes = [
        undefined,
        "",
        mintKey("tg_"),
        mintKey("xx_"),
        secret.slice(0, -1),
        `${secret}0`,
        `${secret}\n`,
        ` ${secret}`,
        secret.toUpperCase(),
        `${prefixOf(secret)}%${"0".repeat(31)}`,
        "tg_' OR 1=1--",
        "x".repeat(1_000_000)
      ]
      const answers = yield* Effect.forEach(shapes, outcomeOf)
      assert.deepStrictEqual(
        answers,
        shapes.map(() => "Unauthorized")
      )
    })

    test("when a key is revoked, then it is refused within about a second, and reading it does not bring it back", function* () {
      const { addKey, revoke } = yield* World
      const [kept, gone] = [yield* addKey(), yield* addKey()]
      assert.deepStrictEqual(yield* Effect.forEach([kept, gone], outcomeOf), ["ok", "ok"])
      yield* revoke(prefixOf(gone))
      yield* becomes(outcomeOf(gone), "Unauthorized")
      assert.deepStrictEqual(yield* Effect.forEach([kept, gone, gone], outcomeOf), [
        "ok",
        "Unauthorized",
        "Unauthorized"
      ])
    })

    test("when a key or its tenant is disabled, then it is refused, and enabling lets it in again, in about a second", function* () {
      const { addKey, setKeyEnabled, setTenantEnabled } = yield* World
      const secret = yield* addKey()
      for (const set of [setKeyEnabled, setTenantEnabled]) {
        assert.strictEqual(yield* outcomeOf(secret), "ok")
        yield* set(prefixOf(secret), false)
        yield* becomes(outcomeOf(secret), "Unauthorized")
        yield* set(prefixOf(secret), true)
        yield* becomes(outcomeOf(secret), "ok")
      }
    })

    test("when a key has expired, then it is refused", function* () {
      const { addKey, expire } = yield* World
      const secret = yield* addKey()
      assert.strictEqual(yield* outcomeOf(secret), "ok")
      yield* expire(prefixOf(secret))
      yield* becomes(outcomeOf(secret), "Unauthorized")
    })

    test("when a limit is changed, then it is in force within about a second", function* () {
      const { addKey, setRpm } = yield* World
      const secret = yield* addKey()
      const store = yield* KeyStore
      const rpm = Effect.suspend(() => store.verify(secret)).pipe(
        Effect.map(({ facts }) => facts.caller.limits.rpm),
        Effect.orDie
      )
      assert.strictEqual(yield* rpm, 60)
      yield* setRpm(prefixOf(secret), 5)
      yield* becomes(rpm, 5)
    })

    test("when the database is away, then all keys are refused, and accepted again when it is back", function* () {
      const { addKey, setDown } = yield* World
      const secret = yield* addKey()
      const store = yield* KeyStore
      assert.strictEqual(yield* outcomeOf(secret), "ok")
      yield* setDown(true)
      yield* becomes(outcomeOf(secret), "Unavailable", 2000)
      assert.strictEqual(yield* outcomeOf(mintKey("tg_")), "Unavailable")
      assert.strictEqual((yield* Effect.flip(store.ping))._tag, "Unavailable")
      // What has not the shape of a key needs no database.
      assert.strictEqual(yield* outcomeOf("nonsense"), "Unauthorized")
      yield* setDown(false)
      yield* becomes(outcomeOf(secret), "ok", 10_000)
      yield* store.ping
    })
  })
