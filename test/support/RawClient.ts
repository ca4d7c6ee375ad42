/** A client that sends bytes as they are: HTTP libraries tidy up exactly what these tests are about. */
import { connect } from "node:net"
import { Effect } from "effect"

export interface RawResponse {
  readonly status: number
  readonly headers: ReadonlyMap<string, string>
  readonly body: string
  /** everything that came, to the last byte */
  readonly text: string
}

const parse = (text: string): RawResponse => {
  const end = text.indexOf("\r\n\r\n")
  const [statusLine = "", ...lines] = text.slice(0, end === -1 ? text.length : end).split("\r\n")
  return {
    status: Number(statusLine.split(" ")[1] ?? 0),
    headers: new Map(
      lines.map((line) => {
        const colon = line.indexOf(":")
        return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()] as const
      })
    ),
    body: end === -1 ? "" : text.slice(end + 4),
    text
  }
}

/** Sends `bytes` on a fresh connection and collects what comes until the server closes, or for `patienceMs`. */
export const sendRaw = (url: string, bytes: string | Uint8Array, patienceMs = 5000): Effect.Effect<RawResponse> =>
  Effect.callback((resume) => {
    const { hostname, port } = new URL(url)
    const socket = connect(Number(port), hostname)
    let text = ""
    const finish = () => {
      clearTimeout(timer)
      socket.destroy()
      resume(Effect.succeed(parse(text)))
    }
    const timer = setTimeout(finish, patienceMs)
    socket.on("connect", () => socket.write(bytes))
    socket.on("data", (chunk) => {
      text += chunk.toString("latin1")
      const length = parse(text).headers.get("content-length")
      if (length !== undefined && parse(text).body.length >= Number(length)) finish()
    })
    socket.on("error", finish)
    socket.on("close", finish)
    return Effect.sync(finish)
  })

/** A whole request line and headers, closed after the answer; `target` goes out untouched. */
export const rawRequest = (method: string, target: string, headers: ReadonlyArray<string> = [], body = ""): string =>
  [`${method} ${target} HTTP/1.1`, "Host: gateway", "Connection: close", ...headers, "", body].join("\r\n")
