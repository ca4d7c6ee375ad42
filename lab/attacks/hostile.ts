/**
 * The answers of a hostile or broken model server. The name of the model says what it does. The attacks run against a
 * server that is made of these, and `npm run soak` mixes them with honest answers.
 */
import type { ServerResponse } from "node:http"

/** What the server needs to know of one request. */
export interface Asked {
  readonly model: string
  /** `/api/chat`, `/api/generate`, `/api/embed`, `/api/embeddings` or `/api/show` */
  readonly path: string
  /** the body as text */
  readonly body: string
  /** the bound that the gateway sent; 4096 without one */
  readonly bound: number
  /** how many texts an embedding request has */
  readonly inputs: number
  /** bytes of all strings in the body, names of properties included */
  readonly textBytes: number
  /** counts tokens that the server has made, whether or not anybody gets them */
  readonly generated: (tokens: number) => void
}

export type Answer = (asked: Asked, response: ServerResponse) => void

const textBytesOf = (value: unknown): number => {
  if (typeof value === "string") return Buffer.byteLength(value)
  if (Array.isArray(value)) return value.reduce((sum: number, item) => sum + textBytesOf(item), 0)
  if (typeof value !== "object" || value === null) return 0
  return Object.entries(value).reduce((sum, [name, inner]) => sum + name.length + textBytesOf(inner), 0)
}

const parsed = (body: string): object => {
  try {
    const value: unknown = JSON.parse(body)
    return typeof value === "object" && value !== null ? value : {}
  } catch {
    return {} // the gateway never sends such a body; a person might
  }
}

/** What the server has to know of a request it got. */
export const askedOf = (path: string, body: string): Omit<Asked, "generated"> => {
  const fields = parsed(body)
  const input = "input" in fields ? fields.input : undefined
  return {
    model: "model" in fields ? String(fields.model).replace(/:latest$/, "") : "",
    path,
    body,
    bound: Number(/"num_predict":(-?\d+)/.exec(body)?.[1] ?? 4096),
    inputs: Array.isArray(input) ? input.length : 1,
    textBytes: textBytesOf(fields)
  }
}

const at = "2026-01-01T00:00:00Z"

export const line = ({ model, path }: Asked, text: string, more: object = {}): string => {
  const words =
    path === "/api/generate" ? { response: text } : { message: { role: "assistant", content: text } }
  return `${JSON.stringify({ model, created_at: at, ...words, done: false, ...more })}\n`
}

export const tokensOf = (bytes: number): number => 5 + Math.ceil(bytes / 4)

export const last = (asked: Asked, evalCount: number, more: object = {}): string =>
  line(asked, "", {
    done: true,
    done_reason: evalCount >= asked.bound ? "length" : "stop",
    prompt_eval_count: tokensOf(asked.textBytes),
    eval_count: evalCount,
    ...more
  })

export const streaming = (response: ServerResponse): void => {
  response.setHeader("content-type", "application/x-ndjson")
  response.on("error", () => response.destroy())
}

/** Writes what `next` gives as fast as it is taken, until it gives nothing. */
const pour = (response: ServerResponse, next: () => string | undefined): void => {
  const more = (): void => {
    for (let i = 0; i < 64; i += 1) {
      if (response.destroyed) return
      const piece = next()
      if (piece === undefined) return void response.end()
      if (!response.write(piece)) return void response.once("drain", more)
    }
    setImmediate(more)
  }
  more()
}

const endless =
  (piece: (asked: Asked) => string): Answer =>
  (asked, response) => {
    streaming(response)
    const text = piece(asked)
    pour(response, () => text)
  }

const logprobs = (count: number): object => {
  const token = { token: "word", logprob: -0.123456789, bytes: [119, 111, 114, 100] }
  const one = { ...token, top_logprobs: Array.from({ length: 20 }, () => token) }
  return { logprobs: Array.from({ length: count }, () => one) }
}

/** One token after the other, `perSecond` of them, at most `most`. */
const steady =
  (perSecond: number, most: (asked: Asked) => number): Answer =>
  (asked, response) => {
    streaming(response)
    const began = performance.now()
    const word = line(asked, " word")
    let sent = 0
    const timer = setInterval(() => {
      const due = Math.min(most(asked), Math.floor(((performance.now() - began) * perSecond) / 1000))
      if (response.destroyed) return clearInterval(timer)
      for (; sent < due; sent += 1) {
        response.write(word)
        asked.generated(1)
      }
      if (sent < most(asked)) return
      clearInterval(timer)
      response.end(last(asked, sent))
    }, 4)
  }

/** Generates 500 tokens a second and says nothing until it has them all, as it does with tools or a format. */
const heldBack =
  (frames: (asked: Asked, tokens: number) => string): Answer =>
  (asked, response) => {
    streaming(response)
    const perSecond = 500
    const tokens = Math.min(asked.bound, 2 * perSecond)
    let made = 0
    const timer = setInterval(() => {
      if (response.destroyed) return clearInterval(timer)
      const step = Math.min(tokens - made, perSecond / 20)
      asked.generated(step)
      made += step
      if (made < tokens) return
      clearInterval(timer)
      response.end(frames(asked, tokens))
    }, 50)
  }

/** More than was asked for, with the end, in one write. */
const bundle =
  (tokens: number, counts: object): Answer =>
  (asked, response) => {
    streaming(response)
    setTimeout(() => {
      asked.generated(tokens)
      response.end(line(asked, " word").repeat(tokens) + last(asked, tokens, counts))
    }, 200)
  }

const refuse =
  (status: number, text: string): Answer =>
  (_, response) => {
    response.writeHead(status, { "content-type": "application/json" })
    response.end(JSON.stringify({ error: text }))
  }

const vector = `[${Array.from({ length: 1024 }, (_, i) => `0.${String(1234567890123 + i)}`).join(",")}]`

const vectors: Answer = ({ inputs, model, path, textBytes }, response) => {
  response.setHeader("content-type", "application/json")
  response.on("error", () => response.destroy())
  if (path === "/api/embeddings") return void response.end(`{"embedding":${vector}}`)
  const counts = `"prompt_eval_count":${tokensOf(textBytes)}`
  let left = inputs
  response.write(`{"model":"${model}",${counts},"embeddings":[`)
  pour(response, () => {
    if (left === 0) return undefined
    left -= 1
    return left === 0 ? `${vector}]}` : `${vector},`
  })
}

const endlessVector: Answer = (_, response) => {
  response.setHeader("content-type", "application/json")
  response.on("error", () => response.destroy())
  response.write('{"embeddings":[[0')
  pour(response, () => ",0.1234567890123".repeat(4096))
}

/** Vectors without numbers, as many as an answer to many texts has bytes for. */
const emptyVectors: Answer = (_, response) => {
  response.setHeader("content-type", "application/json")
  response.on("error", () => response.destroy())
  response.write('{"embeddings":[')
  let left = 31 * 2 ** 20
  pour(response, () => {
    if (left <= 0) return undefined
    left -= 3 * 20_000
    return left > 0 ? "[],".repeat(20_000) : "[]]}"
  })
}

/** One vector that has nearly all bytes, and a number for each other text. */
const unevenVectors: Answer = ({ inputs }, response) => {
  response.setHeader("content-type", "application/json")
  response.on("error", () => response.destroy())
  response.write('{"embeddings":[[0')
  let left = 480
  pour(response, () => {
    left -= 1
    if (left < 0) return undefined
    return left === 0 ? `]${",[1]".repeat(inputs - 1)}]}` : ",1".repeat(32_768)
  })
}

const million = "a ".repeat(500_000)
const call = (args: object) => ({
  message: { role: "assistant", content: "", tool_calls: [{ function: { name: "f", arguments: args } }] }
})

export const hostile: Readonly<Record<string, Answer>> = {
  /** counts every string it is given, and takes long enough for others to be admitted meanwhile */
  counting: (asked, response) => {
    streaming(response)
    setTimeout(() => response.end(line(asked, "word") + last(asked, 1)), 400)
  },
  steady: steady(500, ({ bound }) => bound),
  /** 8 MB in one second: more than the kernel takes for a client that does not read */
  "one-second": (asked, response) => {
    streaming(response)
    const text = "a ".repeat(200_000)
    let left = 20
    const timer = setInterval(() => {
      left -= 1
      if (response.destroyed) return clearInterval(timer)
      asked.generated(50)
      response.write(line(asked, text))
      if (left > 0) return
      clearInterval(timer)
      response.end(last(asked, 1000))
    }, 50)
  },
  deaf: steady(1000, () => 1_000_000),
  logprobs: endless((asked) => line(asked, "", logprobs(16))),
  "fat-logprobs": endless((asked) => line(asked, "", logprobs(5000))),
  "seven-megabytes": (asked, response) => {
    streaming(response)
    const frame = line(asked, "a ".repeat(3_500_000))
    let left = 80
    pour(response, () => (left-- > 0 ? frame : undefined))
  },
  megabytes: endless((asked) => line(asked, million)),
  "tool-calls": endless((asked) =>
    line(asked, "", call(Object.fromEntries(Array.from({ length: 20_000 }, (_, i) => [`argument${i}`, i]))))
  ),
  "empty-objects": (asked, response) => {
    streaming(response)
    const objects = Array.from({ length: 150_000 }, () => ({}))
    response.write(line(asked, "", call({ x: objects })))
    setTimeout(() => response.end(last(asked, 1)), 500)
  },
  "nested-tool-calls": (asked, response) => {
    streaming(response)
    const depth = 500_000
    const nested = `${'{"a":'.repeat(depth)}1${"}".repeat(depth)}`
    const frame = line(asked, "", call({ x: "NESTED" })).replace('"NESTED"', nested)
    response.end(frame + last(asked, 1))
  },
  "endless-line": (asked, response) => {
    streaming(response)
    response.write(line(asked, "").slice(0, -20))
    pour(response, () => "a".repeat(65_536))
  },
  "empty-frames": endless((asked) => line(asked, "").repeat(64)),
  "unknown-fields": endless((asked) => line(asked, "", { surprise: million })),
  "one-byte-writes": (asked, response) => {
    streaming(response)
    const text = line(asked, "word")
    let i = 0
    pour(response, () => text[i++ % text.length])
  },
  "endless-final": (asked, response) => {
    streaming(response)
    response.write(line(asked, "word") + last(asked, 1))
    pour(response, () => line(asked, million))
  },
  "fat-context": (asked, response) => {
    streaming(response)
    const context = Array.from({ length: 1_000_000 }, (_, i) => i)
    response.end(line(asked, "word") + last(asked, 1, { context }))
  },
  "fat-refusal": (_, response) => {
    response.writeHead(500, { "content-type": "application/json" })
    response.on("error", () => response.destroy())
    response.write('{"error":"')
    pour(response, () => "a".repeat(65_536))
  },
  held: heldBack((asked, tokens) => line(asked, " word".repeat(tokens)) + last(asked, tokens)),
  "held-in-final": heldBack((asked, tokens) =>
    line(asked, " word".repeat(tokens), {
      done: true,
      done_reason: "stop",
      prompt_eval_count: 10,
      eval_count: tokens
    })
  ),
  "held-logprobs": heldBack(
    (asked, tokens) => line(asked, "", logprobs(1)).repeat(tokens) + last(asked, tokens)
  ),
  bundle: bundle(10_000, {}),
  "bundle-uncounted": bundle(10_000, { prompt_eval_count: undefined, eval_count: undefined }),
  "bundle-zero": bundle(10_000, { prompt_eval_count: 0, eval_count: 0 }),
  "bundle-absurd": bundle(3, { prompt_eval_count: 1e15, eval_count: 1e15 }),
  "bundle-one-frame": (asked, response) => {
    streaming(response)
    const tokens = 10_000
    setTimeout(() => {
      asked.generated(tokens)
      response.end(line(asked, " word".repeat(tokens)) + last(asked, tokens))
    }, 200)
  },
  vectors,
  "empty-vectors": emptyVectors,
  "uneven-vectors": unevenVectors,
  "endless-vector": endlessVector,
  "says-404": refuse(404, "model not found"),
  "says-500": refuse(500, "something broke"),
  "breaks-later": (asked, response) => {
    streaming(response)
    response.write(line(asked, "word"))
    setTimeout(() => response.end('{"error":"an error was encountered while running the model"}\n'), 20)
  },
  resets: (_, response) => {
    response.socket?.resetAndDestroy()
  },
  garbage: (_, response) => {
    streaming(response)
    response.end("not json\n".repeat(100))
  },
  silent: () => undefined,
  "shows-empty-objects": (_, response) => {
    response.setHeader("content-type", "application/json")
    response.end(`{"details":{},"tensors":[${"{},".repeat(650_000)}{}]}`)
  },
  "shows-endless": (_, response) => {
    response.setHeader("content-type", "application/json")
    response.on("error", () => response.destroy())
    response.write('{"details":{"family":"')
    pour(response, () => "a".repeat(65_536))
  }
}
