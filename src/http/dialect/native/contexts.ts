/** Opens and seals contexts with the shared secret. */
import { Effect } from "effect"
import { BadRequest, type Unavailable } from "../../../domain/Errors.ts"
import type { DecodedRequest } from "../../../domain/Inference.ts"
import type { ContextSecret } from "../../../secrets/ContextSecret.ts"
import type { SealContext } from "../Dialect.ts"
import { openContext, sealContext, type SealedFor } from "./sealedContext.ts"

type Secret = ContextSecret["Service"]

const notOurs = new BadRequest({ detail: "context: expected what an earlier answer to this key gave" })

/** Opens the context of a request, if it has one. */
export const withContext = (
  secret: Secret,
  keyId: string,
  request: DecodedRequest
): Effect.Effect<DecodedRequest, BadRequest | Unavailable> => {
  const { sealedContext } = request
  if (sealedContext === undefined) return Effect.succeed(request)
  return Effect.flatMap(secret.read, (bytes): Effect.Effect<DecodedRequest, BadRequest> => {
    const opened = openContext(bytes, keyId, sealedContext)
    return opened === undefined
      ? notOurs
      : Effect.succeed({
          ...request,
          body: { ...request.body, context: opened.ids },
          contextDigest: opened.digest
        })
  })
}

export const noContext: SealContext = () => undefined

/** Without the secret the answer has no context, because an unsealed one could be read. */
export const sealFor = (secret: Secret, owner: SealedFor): Effect.Effect<SealContext> =>
  secret.read.pipe(
    Effect.map(
      (bytes): SealContext =>
        (ids) =>
          sealContext(bytes, owner, ids)
    ),
    Effect.catch((error) => Effect.as(Effect.logWarning("context secret unreadable", error.cause), noContext))
  )
