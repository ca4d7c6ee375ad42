import { Effect } from "effect"

/** What `fetch` of a test or a lab sends with a key. */
export const posting = (
  secret: string,
  body: unknown,
  headers: Readonly<Record<string, string>> = {}
): { readonly method: "POST"; readonly headers: Record<string, string>; readonly body: string } => ({
  method: "POST",
  headers: { authorization: `Bearer ${secret}`, "content-type": "application/json", ...headers },
  body: JSON.stringify(body)
})

/** What a client asks with; a body makes it a POST. */
export interface Asked {
  readonly secret?: string | undefined
  readonly body?: unknown
  readonly method?: string
  readonly headers?: Readonly<Record<string, string>>
}

/** One request, its body read to the end: one promise, so that whoever is interrupted while the answer comes has left. */
export const ask = (url: URL | string, { secret, body, method, headers }: Asked = {}) =>
  Effect.promise(async (signal) => {
    const response = await fetch(url, {
      method: method ?? (body === undefined ? "GET" : "POST"),
      signal,
      headers: {
        ...(secret === undefined ? {} : { authorization: `Bearer ${secret}` }),
        ...(body === undefined ? {} : { "content-type": "application/json" }),
        ...headers
      },
      ...(body === undefined ? {} : { body: typeof body === "string" ? body : JSON.stringify(body) })
    })
    return { status: response.status, headers: response.headers, text: await response.text() }
  })
