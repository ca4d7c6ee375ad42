/** Admits or refuses the schema of a decoded request, of either surface. */
import { Result } from "effect"
import { type Decided, refuse } from "../../domain/Errors.ts"
import type { DecodedRequest } from "../../domain/Inference.ts"
import { isObject } from "../../domain/json.ts"
import { maxDetail } from "./decode.ts"
import { admitSchema } from "../../backend/ollama/guards/schemas.ts"

/** `field`: the client's own name of it. */
export const admitFormat = (request: DecodedRequest, field: string): Decided<DecodedRequest> => {
  const { format } = request.body
  if (!isObject(format)) return Result.succeed(request)
  const admitted = admitSchema(format, field)
  return Result.isSuccess(admitted)
    ? Result.succeed({
        ...request,
        body: { ...request.body, format: admitted.success.schema },
        relaxed: admitted.success.relaxed
      })
    : refuse(admitted.failure.slice(0, maxDetail))
}
