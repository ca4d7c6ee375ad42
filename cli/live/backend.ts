/** What commands need of the model server. */
import { Effect, Layer } from "effect"
import { Backend } from "../../src/backend/Backend.ts"
import { layerCircuitBreaker } from "../../src/backend/CircuitBreaker.ts"
import { layerOllama } from "../../src/backend/ollama/client.ts"
import { Drain } from "../../src/infra/Drain.ts"
import { backendStatus } from "../checks/backend.ts"
import { checked } from "../checks/Check.ts"
import { backendUrl } from "../environment.ts"

const layerBackend = Layer.unwrap(
  Effect.map(backendUrl, (url) =>
    layerOllama({ url, connectTimeoutMs: 3000, firstByteTimeoutMs: 10_000, idleTimeoutMs: 10_000 })
  )
).pipe(Layer.provide([layerCircuitBreaker({ failures: 5, openMs: 1000 }), Drain.layer]))

export const models = Effect.flatMap(Backend, ({ models }) => models).pipe(Effect.provide(layerBackend))

export const status = checked("backend", Effect.provide(backendStatus, layerBackend))
