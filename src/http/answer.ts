/**
 * The answer of a request that went well, in one object: finished when it is encoded and before it is sent.
 *
 * A small answer goes out in one write and has left this process by then, unless its client does not read. Any other keeps
 * the concurrency slot until the kernel has its last byte or the connection is gone, so that a key has no more answers in
 * memory than slots.
 */
import type { IncomingMessage, ServerResponse } from "node:http"
import { Effect } from "effect"
import { HttpServerResponse } from "effect/http"
import type { Unavailable } from "../domain/Errors.ts"
import type { RequestContext } from "../request/RequestContext.ts"
import { AnswerBody, pieceBytes } from "./server/AnswerBody.ts"
import type { Desk } from "./Desk.ts"
import { headersOf, jsonType, respondText } from "./respond.ts"

/** What is returned of a response that has been written: the server leaves it alone (`writableEnded`). */
export const written = HttpServerResponse.empty({ status: 200 })

/**
 * Whether `text` leaves this process when it is written: it is one piece, nothing waits before it on its connection, and
 * no answer that was asked for before it is still to be given there.
 */
export const leavesAtOnce = (text: string, incoming: IncomingMessage, response: ServerResponse): boolean =>
  text.length <= pieceBytes && response.socket !== null && incoming.socket.writableLength <= pieceBytes

/** An answer's share of the memory for unread ones; it is cut with its connection. */
export const waitingFor = (unread: Desk["unread"], context: RequestContext, incoming: IncomingMessage) =>
  unread.answer(context.caller, () => incoming.socket.destroy())

export const makeAnswer =
  ({ pipeline, unread }: Pick<Desk, "pipeline" | "unread">) =>
  /** `json` is the body as text. */
  (
    context: RequestContext,
    incoming: IncomingMessage,
    response: ServerResponse,
    json: string
  ): Effect.Effect<HttpServerResponse.HttpServerResponse, Unavailable> => {
    if (incoming.method === "HEAD" || leavesAtOnce(json, incoming, response)) {
      return Effect.map(pipeline.finish(context, { status: 200 }), () => respondText(context, json))
    }
    // The text is not kept while the client reads.
    const bytes = Buffer.from(json)
    const write = Effect.suspend(() => {
      const headers = {
        ...headersOf(context),
        "content-type": jsonType,
        "content-length": String(bytes.length)
      }
      const body = new AnswerBody(response, headers, waitingFor(unread, context, incoming))
      return Effect.andThen(body.writeBytes(bytes), body.endAndWait())
    })
    return pipeline
      .finish(context, { status: 200, keepSlot: true })
      .pipe(Effect.andThen(write), Effect.ensuring(pipeline.release(context)), Effect.as(written))
  }

export type Answer = ReturnType<typeof makeAnswer>
