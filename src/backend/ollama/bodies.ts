/** The bodies of calls of the model server. */
import type { InferenceRequest, ModelCall } from "../../domain/Inference.ts"
import type { Place } from "../../domain/Reservation.ts"

/** Whether the request asks for a level of reasoning, as far as the model is able. */
export const hasLevel = ({ request: { body, thinkIfAble } }: ModelCall): boolean =>
  thinkIfAble === true && typeof body["think"] === "string"

export const withoutLevel = (call: ModelCall): ModelCall => ({
  ...call,
  request: { ...call.request, body: { ...call.request.body, think: true } }
})

/** The body of a call with frames. It is always streamed and bounded, whatever the client asked for. */
export const streamBodyOf = (
  model: string,
  { request, maxTokens }: ModelCall,
  place: Place | undefined
): string =>
  JSON.stringify({
    ...request.body,
    model,
    // Of a pinned model, else left out. What clients say of it is dropped when their requests are decoded.
    keep_alive: place?.keepAliveS,
    stream: true,
    options: { ...request.options, num_predict: maxTokens }
  })

/** The body of a call with one object as its answer. Nothing is generated, so it needs no bound. */
export const objectBodyOf = (
  model: string,
  { body, options }: InferenceRequest,
  place: Place | undefined
): string =>
  JSON.stringify({
    ...body,
    model,
    // Of a pinned model, else left out. What clients say of it is dropped when their requests are decoded.
    keep_alive: place?.keepAliveS,
    ...(Object.keys(options).length === 0 ? {} : { options })
  })
