/** A client that sends bytes as they are: HTTP libraries tidy up exactly what these tests are about. */
import { connect, type Socket } from "node:net"
import { Effect } from "effect"
import { heard, requestIn } from "./invariants/Witness.ts"
import { makeStopwatch, maxWaitMs } from "./wait.ts"

export interface RawResponse {
  readonly status: number
  readonly headers: ReadonlyMap<string, string>
  readonly body: string
  /** everything that came, to the last byte */
  readonly text: string
}

const headOf = (text: string) => {
  const end = text.indexOf("\r\n\r\n")
  const [statusLine = "", ...lines] = text.slice(0, end === -1 ? text.length : end).split("\r\n")
  return {
    end,
    status: Number(statusLine.split(" ")[1] ?? 0),
    headers: new Map(
      lines.map((line) => {
        const colon = line.indexOf(":")
        return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()] as const
      })
    )
  }
}

const parse = (text: string): RawResponse => {
  const { end, status, headers } = headOf(text)
  return { status, headers, body: end === -1 ? "" : text.slice(end + 4), text }
}

/** The body of a chunked answer and where it ends; undefined while it is not whole. */
const unchunked = (
  text: string,
  from: number
): { readonly body: string; readonly end: number } | undefined => {
  let body = ""
  for (let at = from; ;) {
    const line = text.indexOf("\r\n", at)
    if (line === -1) return undefined
    const size = Number.parseInt(text.slice(at, line), 16)
    const next = line + 2 + size + 2
    if (Number.isNaN(size) || next > text.length) return undefined
    if (size === 0) return { body, end: next }
    body += text.slice(line + 2, line + 2 + size)
    at = next
  }
}

/** All answers in `text`, one after the other; `bodiless` for answers to HEAD. The rest is an unfinished one. */
export const responsesIn = (text: string, bodiless = false): ReadonlyArray<RawResponse> => {
  const responses: Array<RawResponse> = []
  for (let rest = text; rest !== "";) {
    const { end, status, headers } = headOf(rest)
    if (end === -1) return responses
    const from = end + 4
    const empty = bodiless || status < 200 || status === 204 || status === 304
    const length = Number(headers.get("content-length") ?? 0)
    const whole = empty
      ? { body: "", end: from }
      : headers.get("transfer-encoding") === "chunked"
        ? unchunked(rest, from)
        : from + length <= rest.length
          ? { body: rest.slice(from, from + length), end: from + length }
          : undefined
    if (whole === undefined) return responses
    responses.push({ status, headers, body: whole.body, text: rest.slice(0, whole.end) })
    rest = rest.slice(whole.end)
  }
  return responses
}

export interface Talk {
  /** whole answers, 1xx included */
  readonly responses: ReadonlyArray<RawResponse>
  readonly text: string
  /** whether it was the server that ended the connection */
  readonly closed: boolean
  /** from the first byte sent to the end, milliseconds */
  readonly ms: number
}

export interface TalkOptions {
  readonly patienceMs?: number
  /** gives up after so long; `closed` is false then */
  /** ends the talk after so many final answers, without waiting for the server to close */
  readonly answers?: number
  readonly bodiless?: boolean
  /** what is done once connected, beside sending: say more, half-close, destroy. Stops with the socket. */
  readonly also?: (socket: Socket) => void
}

/** Sends `bytes` and listens until the server closes, `answers` came, or patience ends. Never fails. */
export const talk = (
  url: string,
  bytes: string | Uint8Array,
  options: TalkOptions = {}
): Effect.Effect<Talk> =>
  Effect.callback((resume) => {
    const { hostname, port } = new URL(url)
    const socket = connect(Number(port), hostname)
    const started = makeStopwatch()
    const received: Array<Buffer> = []
    const finish = (closed: boolean) => {
      clearTimeout(timer)
      socket.destroy()
      const text = Buffer.concat(received).toString("latin1")
      const responses = responsesIn(text, options.bodiless)
      const final = responses.filter(({ status }) => status >= 200)
      const request = final.length === 1 ? requestIn(bytes) : undefined
      for (const answer of final) heard(url, { ...answer, bodiless: options.bodiless === true, request })
      resume(Effect.succeed({ responses, text, closed, ms: started() }))
    }
    const timer = setTimeout(() => finish(false), options.patienceMs ?? maxWaitMs)
    socket.on("connect", () => {
      socket.write(bytes)
      options.also?.(socket)
    })
    socket.on("data", (chunk) => {
      received.push(chunk)
      if (options.answers === undefined) return
      const all = responsesIn(Buffer.concat(received).toString("latin1"), options.bodiless)
      if (all.filter(({ status }) => status >= 200).length >= options.answers) finish(false)
    })
    socket.on("error", () => finish(true))
    socket.on("close", () => finish(true))
    return Effect.sync(() => finish(false))
  })

/** The answer to `bytes`, or what came of it. */
export const sendRaw = (url: string, bytes: string): Effect.Effect<RawResponse> =>
  Effect.map(
    talk(url, bytes, { answers: 1, bodiless: bytes.startsWith("HEAD ") }),
    ({ responses: [answer], text }) => answer ?? parse(text)
  )

/** A whole request line and headers, closed after the answer; `target` goes out untouched. */
export const rawRequest = (
  method: string,
  target: string,
  headers: ReadonlyArray<string> = [],
  body = ""
): string =>
  [`${method} ${target} HTTP/1.1`, "Host: gateway", "Connection: close", ...headers, "", body].join("\r\n")

/** A whole JSON request with its length, kept alive unless told otherwise. */
export const rawPost = (
  target: string,
  secret: string | undefined,
  body: string | Uint8Array,
  headers: ReadonlyArray<string> = ["Connection: close"]
): Buffer => {
  const bytes = Buffer.from(body)
  const head = [
    `POST ${target} HTTP/1.1`,
    "Host: gateway",
    ...(secret === undefined ? [] : [`Authorization: Bearer ${secret}`]),
    ...(headers.some((line) => /^content-type:/i.test(line)) ? [] : ["Content-Type: application/json"]),
    ...(headers.some((line) => /^transfer-encoding:/i.test(line)) ? [] : [`Content-Length: ${bytes.length}`]),
    ...headers,
    "",
    ""
  ].join("\r\n")
  return Buffer.concat([Buffer.from(head, "latin1"), bytes])
}

/** `bytes` as chunks of `size`. */
export const chunked = (bytes: string | Uint8Array, size: number): Buffer => {
  const whole = Buffer.from(bytes)
  const parts: Array<Buffer> = []
  for (let at = 0; at < whole.length; at += size) {
    const piece = whole.subarray(at, at + size)
    parts.push(Buffer.from(`${piece.length.toString(16)}\r\n`), piece, Buffer.from("\r\n"))
  }
  return Buffer.concat([...parts, Buffer.from("0\r\n\r\n")])
}
