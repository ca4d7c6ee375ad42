import { layer, type Vitest } from "@effect/vitest"
import { Effect, type Layer, type Scope } from "effect"

/** What a test does, step by step: its body is a generator as in `Effect.gen`. */
export type Steps<R, Args extends ReadonlyArray<unknown> = []> = (
  ...args: Args
) => Generator<Effect.Effect<unknown, unknown, R | Scope.Scope>, unknown, never>

type Test<R> = (name: string, steps: Steps<R>) => void

/** `const test = testWith(it.effect, layer)`: tests in one world, each `test("when …, then …", function* () { … })`. */
export function testWith<R>(run: Vitest.Test<R>): Test<R>
export function testWith<R, World>(
  run: Vitest.Test<R>,
  layer: Layer.Layer<World, unknown, NoInfer<R>>
): Test<R | World>
export function testWith<R>(run: Vitest.Test<R>, layer?: Layer.Layer<never, unknown, R>): Test<R> {
  return (name, steps) =>
    run(name, () => {
      const test = Effect.scoped(Effect.gen(steps))
      return layer === undefined ? test : Effect.provide(test, layer)
    })
}

/** `inWorld(layer)("the world", (test) => { … })`: tests that share a layer, which is built once, by the real clock. */
export const inWorld =
  <R, E>(world: Layer.Layer<R, E>) =>
  (name: string, tests: (test: Test<R>, it: Vitest.MethodsNonLive<R>) => void): void =>
    layer(world, { excludeTestServices: true })(name, (it) => tests(testWith(it.effect), it))
