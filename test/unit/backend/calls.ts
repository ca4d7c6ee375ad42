/** What the tests of the undici backend have in common: one backend on a fake, one call, its frames or its failure. */
import { uncounted } from "../../../src/memory/MemoryLedger.ts"
import { it } from "@effect/vitest"
import { Effect, Layer, type Scope, Stream } from "effect"
import { Backend } from "../../../src/backend/Backend.ts"
import { layerCircuitBreaker } from "../../../src/backend/CircuitBreaker.ts"
import type { CallError } from "../../../src/backend/errors.ts"
import { layerOllama, type OllamaOptions } from "../../../src/backend/ollama/client.ts"
import { Drain } from "../../../src/infra/Drain.ts"
import { type Behaviour, fake, type FakeBackend, makeFakeBackend } from "../../support/FakeBackend.ts"
import { callOf, permitFor } from "../../support/permits.ts"
import type { Steps } from "../../support/testWith.ts"

/** Patient: a busy machine is no failure. A test of a limit sets its own. */
export const layerPatient = (url: string, options: Partial<OllamaOptions> = {}) =>
  layerOllama({
    url: new URL(url),
    connectTimeoutMs: 60_000,
    firstByteTimeoutMs: 60_000,
    idleTimeoutMs: 60_000,
    ...options
  }).pipe(Layer.provide([layerCircuitBreaker({ failures: 1000, openMs: 1000 }), Drain.layer]))

export const withBackend = <A, E>(
  test: (fakeBackend: FakeBackend) => Effect.Effect<A, E, Backend | Scope.Scope>,
  options: Partial<OllamaOptions> = {}
) =>
  Effect.gen(function* () {
    const backend = yield* makeFakeBackend
    const layer = layerPatient(backend.url, { connections: 8, ...options })
    return yield* Effect.provide(Effect.scoped(test(backend)), layer)
  })

export const test = (
  name: string,
  steps: Steps<Backend, [backend: FakeBackend]>,
  options: Partial<OllamaOptions> = {}
) => it.live(name, () => withBackend((backend) => Effect.gen(() => steps(backend)), options))

export const forward = (call = callOf()) =>
  Effect.flatMap(Backend, (backend) => backend.forward(permitFor("fake:latest", call), uncounted))
export const run = (call = callOf()) => Effect.scoped(Effect.flatMap(forward(call), Stream.runCollect))
export const named = (error: CallError): string => (error._tag === "BackendFailed" ? error.fault : error._tag)
export const failure = Effect.map(Effect.flip(run()), named)
export const texts = Effect.map(run(), (frames) => frames.map(({ text }) => text).join("|"))
export const generate = callOf({ kind: "generate", body: { prompt: "hi" } })
export const stream = (
  lines: ReadonlyArray<string | ReturnType<typeof fake.chat>>,
  more: object = {}
): Behaviour => ({
  does: "stream",
  lines,
  ...more
})
