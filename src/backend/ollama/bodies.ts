/** The bodies of calls of the model server. */
import type { ModelCall, PreparedRequest } from "../../domain/Inference.ts"
import type { Place } from "../../domain/Reservation.ts"

/** Whether the request asks for a level of reasoning, as far as the model is able. */
export const hasLevel = ({ request: { think, thinkIfAble } }: ModelCall): boolean =>
  thinkIfAble === true && typeof think === "string"

export const withoutLevel = (call: ModelCall): ModelCall => ({
  ...call,
  request: { ...call.request, think: true }
})

/** The body of a call with frames. It is always streamed and bounded, whatever the client asked for. */
export const streamBodyOf = (
  model: string,
  { maxTokens, request: { options, text, think } }: ModelCall,
  place: Place | undefined
): Buffer =>
  text.with({
    model,
    // Of a pinned model, else left out. What clients say of it is dropped when their requests are decoded.
    ...(place?.keepAliveS === undefined ? {} : { keep_alive: place.keepAliveS }),
    ...(think === undefined ? {} : { think }),
    stream: true,
    options: { ...options, num_predict: maxTokens }
  })

/** The body of a call with one object as its answer. Nothing is generated, so it needs no bound. */
export const objectBodyOf = (
  model: string,
  { options, text }: PreparedRequest,
  place: Place | undefined
): Buffer =>
  text.with({
    model,
    // Of a pinned model, else left out. What clients say of it is dropped when their requests are decoded.
    ...(place?.keepAliveS === undefined ? {} : { keep_alive: place.keepAliveS }),
    ...(Object.keys(options).length === 0 ? {} : { options })
  })
