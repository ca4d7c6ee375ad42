/** Makes the ids of requests. A simulation has its own, so that the same seed gives the same ids. */
import { randomUUIDv7 } from "node:crypto"
import { Context } from "effect"

export const RequestIds = Context.Reference<() => string>("tollgate/infra/RequestIds", {
  defaultValue: () => () => randomUUIDv7()
})
