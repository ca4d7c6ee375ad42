/** A random secret of this process only. */
import { randomBytes } from "node:crypto"
import { Effect, Layer } from "effect"
import { ContextSecret } from "./ContextSecret.ts"

export const layerMemory: Layer.Layer<ContextSecret> = Layer.sync(ContextSecret, () => {
  const secret = randomBytes(32)
  return ContextSecret.of({ read: Effect.succeed(secret) })
})
