/** What a backend of the tests does with one call. */
import type { ServerResponse } from "node:http"
import { Readable } from "node:stream"
import { pipeline } from "node:stream/promises"
import { setTimeout as sleep } from "node:timers/promises"
import type { JsonObject } from "../../src/domain/Inference.ts"

export type Behaviour =
  /** NDJSON; a string is sent as it is, an object as a line. Frames may be built with `fake`. */
  | {
      readonly does: "stream"
      readonly lines: ReadonlyArray<string | JsonObject>
      /** pause before every line */
      readonly gapMs?: number
      /** bytes per write; 1 splits everything everywhere. Unset: one write per line */
      readonly split?: number
      /** waited for before the last line */
      readonly holdsLast?: Promise<unknown>
      /** all lines in one write */
      readonly together?: boolean
      readonly newline?: string
      /** the last line goes without its newline */
      readonly unterminated?: boolean
      /** after the last line: end properly (default), kill the connection, or say nothing more */
      readonly ends?: "end" | "reset" | "hang"
      readonly contentType?: string
      readonly headers?: Readonly<Record<string, string>>
    }
  /** a whole answer */
  | {
      readonly does: "answer"
      readonly status: number
      readonly body?: string
      readonly contentType?: string
      readonly headers?: Readonly<Record<string, string>>
    }
  /** takes the request and never says a word */
  | { readonly does: "hang" }
  /** kills the connection before any byte of an answer, at once or later */
  | { readonly does: "reset"; readonly afterMs?: number }
  /** the same line for ever, as fast as it is read */
  | { readonly does: "flood"; readonly line: string }
  /** raw bytes on the socket instead of HTTP */
  | { readonly does: "raw"; readonly bytes: string }

/** Answers as told; `recorded.written` counts the bytes. */
export const behave = async (
  behaviour: Behaviour,
  response: ServerResponse,
  recorded: { written: number }
): Promise<void> => {
  const write = (bytes: Buffer): void => {
    recorded.written += bytes.length
    response.write(bytes)
  }
  switch (behaviour.does) {
    case "hang":
      return undefined
    case "reset":
      if (behaviour.afterMs !== undefined) await sleep(behaviour.afterMs)
      response.socket?.resetAndDestroy()
      return undefined
    case "raw":
      response.socket?.end(behaviour.bytes)
      return undefined
    case "answer":
      response.writeHead(behaviour.status, {
        "content-type": behaviour.contentType ?? "application/json; charset=utf-8",
        ...behaviour.headers
      })
      response.end(behaviour.body ?? "")
      return undefined
    case "flood": {
      response.writeHead(200, { "content-type": "application/x-ndjson" })
      // The client ends it, always early: that is what it is for.
      await pipeline(Readable.from(forever(behaviour.line, recorded)), response).catch(() => undefined)
      return undefined
    }
    case "stream": {
      response.writeHead(200, {
        "content-type": behaviour.contentType ?? "application/x-ndjson",
        ...behaviour.headers
      })
      response.flushHeaders()
      response.socket?.setNoDelay(true)
      const written = pieces(behaviour)
      for (const [i, bytes] of written.entries()) {
        if (i === written.length - 1) await behaviour.holdsLast
        if (behaviour.gapMs !== undefined) await sleep(behaviour.gapMs)
        // A turn of the loop between writes, or the kernel makes one of them.
        else if (behaviour.split !== undefined) await new Promise((turn) => setImmediate(turn))
        if (response.destroyed) return undefined
        write(bytes)
      }
      if (behaviour.ends === "hang") return undefined
      if (behaviour.ends === "reset") {
        // Let what was said arrive first: a reset overtakes it otherwise.
        await sleep(20)
        response.socket?.resetAndDestroy()
        return undefined
      }
      response.end()
    }
  }
}

function* forever(line: string, recorded: { written: number }): Generator<Buffer> {
  const bytes = Buffer.from(line)
  while (true) {
    recorded.written += bytes.length
    yield bytes
  }
}

const pieces = (behaviour: Extract<Behaviour, { does: "stream" }>): ReadonlyArray<Buffer> => {
  const newline = behaviour.newline ?? "\n"
  const lines = behaviour.lines.map((line) => (typeof line === "string" ? line : JSON.stringify(line)))
  const written = lines.map((line, i) =>
    Buffer.from(behaviour.unterminated === true && i === lines.length - 1 ? line : line + newline)
  )
  if (behaviour.together !== true && behaviour.split === undefined) return written
  const whole = Buffer.concat(written)
  const size = behaviour.split ?? whole.length
  return Array.from({ length: Math.ceil(whole.length / size) }, (_, i) =>
    whole.subarray(i * size, (i + 1) * size)
  )
}
