/** Admits or refuses the schema of a decoded request, of either surface. */
import { Effect, Result } from "effect"
import { BadRequest } from "../../domain/Errors.ts"
import type { DecodedRequest } from "../../domain/Inference.ts"
import { isObject } from "../../domain/json.ts"
import { maxDetail } from "./decode.ts"
import { admitSchema } from "./schema/admit.ts"

/** `field`: the client's own name of it. */
export const admitFormat = (
  request: DecodedRequest,
  field: string
): Effect.Effect<DecodedRequest, BadRequest> => {
  const { format } = request.body
  if (!isObject(format)) return Effect.succeed(request)
  const admitted = admitSchema(format, field)
  return Result.isSuccess(admitted)
    ? Effect.succeed({
        ...request,
        body: { ...request.body, format: admitted.success.schema },
        relaxed: admitted.success.relaxed
      })
    : new BadRequest({ detail: admitted.failure.slice(0, maxDetail) })
}
