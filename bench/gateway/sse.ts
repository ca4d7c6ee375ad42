/**
 * NDJSON to SSE with as little work as there can be: what a re-encoding proxy without any logic costs. One
 * string out per chunk in.
 */
export class NdjsonToSse {
  #rest = ""
  readonly #text = new TextDecoder()
  readonly #head: string

  constructor(id: string, model: string) {
    this.#head =
      `data: {"id":"${id}","object":"chat.completion.chunk","created":1700000000,` +
      `"model":${JSON.stringify(model)},"choices":[{"index":0,"delta":`
  }

  push(chunk: Buffer): string {
    const text = this.#rest + this.#text.decode(chunk, { stream: true })
    const end = text.lastIndexOf("\n")
    this.#rest = text.slice(end + 1)
    let out = ""
    for (const line of text.slice(0, end + 1).split("\n")) if (line !== "") out += this.#event(line)
    return out
  }

  #event(line: string): string {
    const frame = JSON.parse(line)
    if (!frame.done)
      return `${this.#head}{"content":${JSON.stringify(frame.message.content)}},"finish_reason":null}]}\n\n`
    const { done_reason: reason, eval_count: out, prompt_eval_count: tokens } = frame
    return (
      `${this.#head}{},"finish_reason":"${reason}"}],"usage":{"prompt_tokens":${tokens},` +
      `"completion_tokens":${out},"total_tokens":${tokens + out}}}\n\ndata: [DONE]\n\n`
    )
  }
}
