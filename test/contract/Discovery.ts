import { assert, it } from "@effect/vitest"
import { Effect, type Scope } from "effect"
import { TestClock } from "effect/testing"
import { describe } from "vitest"
import type { Caller } from "../../src/domain/Caller.ts"
import type { Description, Model } from "../../src/domain/Model.ts"
import { Discovery } from "../../src/gates/models/Discovery.ts"
import { askedOf, callerWith, callOf, modelNamed, verified } from "../support/permits.ts"

export const resolved = (models: Caller["models"], name: string) =>
  Effect.flatMap(Discovery, (discovery) =>
    discovery.resolve(verified(callerWith(models)), askedOf(callOf({ model: name }).request))
  ).pipe(
    Effect.map(({ facts }) => facts.model.name),
    Effect.catchTag("Forbidden", ({ what }) => Effect.succeed(`forbidden ${what}`))
  )

export const effective = (models: Caller["models"]) =>
  Effect.flatMap(Discovery, (discovery) => discovery.effective(verified(callerWith(models)))).pipe(
    Effect.map((list) => list.map(({ name }) => name))
  )

/** A model of an older backend, whose list says nothing of what it can do. */
export const bareModel = (name: string, digest = name): Model => {
  const { capabilities: _untold, ...bare } = modelNamed(name)
  return { ...bare, digest }
}

/**
 * `run` provides the layer under test, which knows of `installed`, to `test`; `descriptions` is what the backend tells of
 * models beside its list.
 */
export const suite = (
  name: string,
  run: (
    installed: ReadonlyArray<Model>,
    test: Effect.Effect<void, unknown, Discovery>,
    descriptions: Readonly<Record<string, Description>>
  ) => Effect.Effect<void, unknown, Scope.Scope>
): void => {
  const none = "forbidden model"
  const installed = [modelNamed("b:latest"), modelNamed("a:7b"), modelNamed("host:5000/ns/c:latest")]
  const check = (
    title: string,
    models: ReadonlyArray<Model>,
    test: Effect.Effect<void, unknown, Discovery>,
    descriptions: Readonly<Record<string, Description>> = {}
  ) => it.effect(title, () => run(models, test, descriptions))

  describe(`Discovery: ${name}`, () => {
    check(
      "when a name is asked for, then it is the exact one, or that without :latest, and nothing near it",
      installed,
      Effect.gen(function* () {
        for (const [asked, answer] of [
          ["a:7b", "a:7b"],
          ["b:latest", "b:latest"],
          ["b", "b:latest"],
          ["host:5000/ns/c", "host:5000/ns/c:latest"],
          ["a", none],
          ["A:7b", none],
          [" a:7b", none],
          ["a:7b ", none],
          ["a:7B", none],
          ["library/b", none],
          ["b:local", none],
          ["b:cloud", none],
          ["b:", none],
          ["", none],
          [":latest", none],
          ["__proto__", none]
        ] as const) {
          assert.strictEqual(yield* resolved("all", asked), answer, asked)
        }
      })
    )

    check(
      "when models are granted, then those that are installed are permitted, in the backend's order",
      installed,
      Effect.gen(function* () {
        const grant = new Set(["a:7b", "b", "missing:latest"])
        assert.deepStrictEqual(yield* effective(grant), ["b:latest", "a:7b"])
        assert.strictEqual(yield* resolved(grant, "b"), "b:latest")
        assert.strictEqual(yield* resolved(grant, "missing"), none)
        assert.strictEqual(yield* resolved(grant, "host:5000/ns/c"), none)
        assert.deepStrictEqual(yield* effective(new Set()), [])
        assert.strictEqual(yield* resolved(new Set(), "a:7b"), none)
        assert.deepStrictEqual(
          yield* effective("all"),
          installed.map(({ name }) => name)
        )
      })
    )

    check(
      "when nothing is installed, then everything is denied",
      [],
      Effect.gen(function* () {
        assert.deepStrictEqual(yield* effective("all"), [])
        assert.strictEqual(yield* resolved("all", "a:7b"), none)
      })
    )

    check(
      "when a name is not valid or comes twice, then it is left out",
      ["a:1", "a:1", "bad\u0000name", "new\nline", "sp ace", "", "x".repeat(351), "ok:1"].map(modelNamed),
      Effect.gen(function* () {
        assert.deepStrictEqual(yield* effective("all"), ["a:1", "ok:1"])
      })
    )

    check(
      "when the list says nothing of a model, then the backend's description does; what the list says comes first",
      [bareModel("old:1"), { ...bareModel("new:1"), capabilities: ["completion"] }, bareModel("silent:1")],
      Effect.gen(function* () {
        yield* TestClock.adjust("1 millis")
        const { effective: list } = yield* Discovery
        const models = yield* list(verified())
        assert.deepStrictEqual(
          models.map(({ capabilities, contextLength }) => [capabilities, contextLength]),
          [
            [["completion", "thinking"], 2048],
            [["completion"], 4096],
            [undefined, undefined]
          ]
        )
      }),
      {
        "old:1": { capabilities: ["completion", "thinking"], contextLength: 2048 },
        "new:1": { capabilities: ["vision"], contextLength: 4096 }
      }
    )

    check(
      "when the backend lists more than ten thousand models, then ten thousand are taken",
      Array.from({ length: 10_050 }, (_, i) => modelNamed(`m:${i}`)),
      Effect.map(effective("all"), (names) => assert.strictEqual(names.length, 10_000))
    )
  })
}
