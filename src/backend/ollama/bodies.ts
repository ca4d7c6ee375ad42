/** The bodies of calls of the model server. */
import type { ModelCall, PreparedRequest } from "../../domain/Inference.ts"

/** The body of a call with frames. It is always streamed and bounded, whatever the client asked for. */
export const streamBodyOf = (
  model: string,
  { numPredict, request: { options, text, think } }: ModelCall
): Buffer =>
  text.with({
    model,
    ...(think === undefined ? {} : { think }),
    stream: true,
    options: { ...options, num_predict: numPredict }
  })

/** The body of a call with one object as its answer. Nothing is generated, so it needs no bound. */
export const objectBodyOf = (model: string, { options, text }: PreparedRequest): Buffer =>
  text.with({
    model,
    ...(Object.keys(options).length === 0 ? {} : { options })
  })
