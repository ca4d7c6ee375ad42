import { assert, it } from "@effect/vitest"
import { Effect, type Scope } from "effect"
import { TestClock } from "effect/testing"
import { describe } from "vitest"
import type { Caller } from "../../src/domain/Caller.ts"
import type { Description, Model } from "../../src/domain/Model.ts"
import { Discovery } from "../../src/gates/models/Discovery.ts"
import { askedOf, callerWith, modelNamed, requestOf, verified } from "../support/permits.ts"
import type { Steps } from "../support/testWith.ts"

export const resolved = (models: Caller["models"], name: string) =>
  Effect.flatMap(Discovery, (discovery) =>
    discovery.resolve(verified(callerWith(models)), askedOf(requestOf({ model: name })))
  ).pipe(
    Effect.map(({ facts }) => facts.model.name),
    Effect.catchTag("Forbidden", ({ what }) => Effect.succeed(`forbidden ${what.split(" ")[0]}`))
  )

/** The names of a tenant with aliases. */
type Names = Pick<Caller, "aliases" | "models">

const withNames = (names: Names) => verified({ ...callerWith(names.models), ...names })

/** The model and the alias that a name resolves to. */
const aliased = (names: Names, name: string) =>
  Effect.flatMap(Discovery, (discovery) =>
    discovery.resolve(withNames(names), askedOf(requestOf({ model: name })))
  ).pipe(
    Effect.map(({ facts }) => `${facts.model.name} as ${facts.alias}`),
    Effect.catchTag("Forbidden", ({ what }) => Effect.succeed(`forbidden ${what.split(" ")[0]}`))
  )

const offered = (names: Names) =>
  Effect.flatMap(Discovery, (discovery) => discovery.effective(withNames(names))).pipe(
    Effect.map((list) =>
      list.map(({ model, name }) => (name === model.name ? name : `${name}=${model.name}`))
    )
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
    test: Effect.Effect<unknown, unknown, Discovery | Scope.Scope>,
    descriptions: Readonly<Record<string, Description>>
  ) => Effect.Effect<unknown, unknown, Scope.Scope>
): void => {
  const none = "forbidden model"
  const installed = [modelNamed("b:latest"), modelNamed("a:7b"), modelNamed("host:5000/ns/c:latest")]
  const check = (
    title: string,
    models: ReadonlyArray<Model>,
    steps: Steps<Discovery>,
    descriptions: Readonly<Record<string, Description>> = {}
  ) => it.effect(title, () => run(models, Effect.gen(steps), descriptions))

  describe(`Discovery: ${name}`, () => {
    check(
      "when a name is an alias, then it resolves to its model, with and without :latest, and is listed after the models",
      installed,
      function* () {
        const aliases = new Map([
          ["zeta", "a:7b"],
          ["fast", "b"]
        ])
        for (const models of ["all", new Set(["a:7b", "b"])] as const) {
          const names = { models, aliases }
          assert.strictEqual(yield* aliased(names, "fast"), "b:latest as fast")
          assert.strictEqual(yield* aliased(names, "fast:latest"), "b:latest as fast")
          assert.strictEqual(yield* aliased(names, "b"), "b:latest as undefined")
          for (const other of ["Fast", "fast:1", " fast", "fas"]) {
            assert.strictEqual(yield* aliased(names, other), none, other)
          }
          assert.deepStrictEqual((yield* offered(names)).slice(-2), ["fast=b:latest", "zeta=a:7b"])
        }
      }
    )

    check(
      "when the model of an alias is missing, not allowed or itself an alias, then the alias is refused and not listed",
      installed,
      function* () {
        const aliases = new Map([
          ["missing", "gone:1"],
          ["denied", "b"],
          ["twice", "fine"],
          ["fine", "a:7b"]
        ])
        const names = { models: new Set(["a:7b", "missing", "denied", "gone:1"]), aliases }
        for (const alias of ["missing", "denied", "twice"]) {
          assert.strictEqual(yield* aliased(names, alias), none, alias)
        }
        assert.deepStrictEqual(yield* offered(names), ["a:7b", "fine=a:7b"])
      }
    )

    check(
      "when an alias has the name of a model that the tenant may use, then the model wins; when it may not, the alias",
      installed,
      function* () {
        const aliases = new Map([["b", "a:7b"]])
        assert.strictEqual(yield* aliased({ models: "all", aliases }, "b"), "b:latest as undefined")
        assert.notInclude(yield* offered({ models: "all", aliases }), "b=a:7b")
        const names = { models: new Set(["a:7b"]), aliases }
        assert.strictEqual(yield* aliased(names, "b"), "a:7b as b")
        assert.deepStrictEqual(yield* offered(names), ["a:7b", "b=a:7b"])
      }
    )

    check(
      "when a name is asked for, then it is the exact one, or that without :latest, and nothing near it",
      installed,
      function* () {
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
      }
    )

    check(
      "when models are granted, then those that are installed are permitted, in the backend's order",
      installed,
      function* () {
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
      }
    )

    check(
      "when a name is not valid or comes twice, then it is left out",
      ["a:1", "a:1", "bad\u0000name", "new\nline", "sp ace", "", "x".repeat(351), "ok:1"].map(modelNamed),
      function* () {
        assert.deepStrictEqual(yield* effective("all"), ["a:1", "ok:1"])
      }
    )

    check(
      "when the list says nothing of a model, then the backend's description does; what the list says comes first",
      [bareModel("old:1"), { ...bareModel("new:1"), capabilities: ["completion"] }, bareModel("silent:1")],
      function* () {
        yield* TestClock.adjust("1 millis")
        const { effective: list } = yield* Discovery
        const models = yield* list(verified())
        assert.deepStrictEqual(
          models.map(({ model }) => [model.capabilities, model.contextLength]),
          [
            [["completion", "thinking"], 2048],
            [["completion"], 4096],
            [undefined, undefined]
          ]
        )
      },
      {
        "old:1": { capabilities: ["completion", "thinking"], contextLength: 2048 },
        "new:1": { capabilities: ["vision"], contextLength: 4096 }
      }
    )

    check(
      "when the backend lists more than ten thousand models, then ten thousand are taken",
      Array.from({ length: 10_050 }, (_, i) => modelNamed(`m:${i}`)),
      function* () {
        assert.lengthOf(yield* effective("all"), 10_000)
      }
    )
  })
}
