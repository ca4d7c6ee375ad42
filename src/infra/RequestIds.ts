/** Makes the ids of requests. A simulation has its own, so that the same seed gives the same ids. */
// A named import would end the simulation on Node 22, which has no randomUUIDv7.
import crypto from "node:crypto"
import { Context } from "effect"

export const newRequestId = (): string => crypto.randomUUIDv7()

export const RequestIds = Context.Reference<() => string>("tollgate/infra/RequestIds", {
  defaultValue: () => newRequestId
})
