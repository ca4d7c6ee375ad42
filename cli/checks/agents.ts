/**
 * `doctor --agents`: asks the gateway as a coding agent would, and names each wall that it meets: body, bound of the output,
 * tokens a minute, window, surface, model without tools.
 */
import { type Duration, Effect, Option, Schema } from "effect"
import { FetchHttpClient, HttpClient, HttpClientRequest } from "effect/http"
import { outcomes } from "../../src/domain/Outcome.ts"
import { surfaces } from "../connect/Client.ts"
import { modelsOf, served } from "../connect/gateway.ts"
import { amount, escapeText } from "../terminal.ts"
import { type Check, failed, ok, took, warning } from "./Check.ts"

/** What the first turn of usual agents has (docs/clients): 31 to 69 KB, up to 17 tools, bounds up to 32,000. */
const firstTurn: Turn = { bytes: 60_000, tools: 15, bound: 32_000 }
/** The body of a session with 64k tokens of context, and more. */
const sessionBytes = 1_048_576
/** Tokens of a first turn, and room for some more. */
const leastWindow = 32_768
/** Ten turns a minute at 60,000 tokens each. */
const leastTokensAMinute = 600_000

interface Turn {
  readonly bytes: number
  readonly tools: number
  readonly bound: number | undefined
}

const tool = (n: number) => ({
  type: "function",
  function: {
    name: `tool_${n}`,
    description: "Reads a file of the workspace and returns its text with the numbers of its lines.",
    parameters: {
      type: "object",
      properties: { path: { type: "string" }, limit: { type: "integer" } },
      required: ["path"]
    }
  }
})

const filler = (bytes: number): string =>
  "You are a coding agent. Answer with one word. ".repeat(bytes / 40).slice(0, bytes)

const bodyOf = (model: string, { bound, bytes, tools }: Turn) => ({
  model,
  stream: true,
  messages: [
    { role: "system", content: filler(bytes) },
    { role: "user", content: "say hi" }
  ],
  ...(tools === 0 ? {} : { tools: Array.from({ length: tools }, (_, n) => tool(n)) }),
  ...(bound === undefined ? {} : { max_tokens: bound })
})

interface Met {
  readonly status: number
  readonly type: string
  readonly message: string
  readonly headers: { readonly [name: string]: string | undefined }
  readonly text: string
}

const decodeError = Schema.decodeUnknownOption(
  Schema.fromJsonString(
    Schema.Struct({ error: Schema.Struct({ type: Schema.String, message: Schema.String }) })
  )
)

/** A wall, and what is left out to see the one behind it; undefined: nothing can be. */
interface Wall {
  readonly check: Check
  readonly without?: Partial<Turn>
}

/** A turn that is small enough for every bound. */
const small: Partial<Turn> = { bytes: 2000, tools: 3 }

type Advice = readonly [name: string, mend: string, without?: Partial<Turn>]

/** What to do about an error of the gateway, by its type. */
const walls: ReadonlyMap<string, Advice> = new Map<string, Advice>([
  [outcomes.payloadTooLarge.type, ["body", "set MAX_REQUEST_BODY_BYTES to 4194304", small]],
  [outcomes.tokensLimited.type, ["tokens a minute", "raise --tpm of the key or tenant (set-limits)"]],
  [outcomes.budgetExceeded.type, ["budget", "raise the budget (set-budget)"]],
  [
    outcomes.contextExceeded.type,
    ["window", "give the model server a larger window, and BACKEND_CONTEXT_LENGTH", small]
  ]
])

/** The same for a request that is refused as wrong. */
const refusals = (message: string): Advice | undefined =>
  message.startsWith("max_tokens:")
    ? ["output bound", "raise NUM_PREDICT_CAP to 65536, or set OUTPUT_ABOVE_CAP=lower", { bound: undefined }]
    : message.includes("does not support")
      ? ["tools", "use a model whose capabilities have tools", { tools: 0 }]
      : undefined

const otherMend = (status: number): string => {
  if (status === outcomes.unauthorized.status) return "give a key that is valid"
  return status === outcomes.forbidden.status
    ? 'see which models the key may use ("tollgate show-key")'
    : 'see the log, and "tollgate requests"'
}

/** What stopped a request. */
const wallOf = ({ message, status, type }: Met): Wall => {
  const said = escapeText(message)
  const wall = type === outcomes.invalidRequest.type ? refusals(message) : walls.get(type)
  if (wall === undefined) {
    const detail = `${status} ${said === "" ? "and no error that a gateway sends" : said}`
    return { check: failed("agents: first turn", detail, otherMend(status)) }
  }
  const [name, mend, without] = wall
  return { check: failed(`agents: ${name}`, said, mend), ...(without === undefined ? {} : { without }) }
}

const post = Effect.fnUntraced(function* (url: string, key: string, body: object) {
  const request = yield* HttpClientRequest.post(`${url}/v1/chat/completions`).pipe(
    HttpClientRequest.bearerToken(key),
    HttpClientRequest.bodyJson(body)
  )
  const response = yield* HttpClient.execute(request)
  const text = yield* response.text
  const { message, type } = Option.match(decodeError(text), {
    onNone: () => ({ type: "", message: "" }),
    onSome: ({ error }) => error
  })
  return { status: response.status, type, message, headers: response.headers, text } satisfies Met
})

/** What an answer shows of walls that are near. */
const nearWalls = ({ headers }: Met): ReadonlyArray<Check> => {
  const perMinute = Number(headers["x-ratelimit-limit-tokens"] ?? Number.NaN)
  return [
    ...(perMinute < leastTokensAMinute
      ? [
          warning(
            "agents: tokens a minute",
            `${amount(perMinute)}: a session with 60,000 tokens of context has ${Math.floor(perMinute / 60_000)} turns a minute`,
            "raise --tpm of the key or tenant (set-limits)"
          )
        ]
      : []),
    ...(headers["x-prompt-truncated"] === undefined
      ? []
      : [
          failed(
            "agents: window",
            "the model server is likely to drop the beginning of the prompt",
            "give it a larger window (OLLAMA_CONTEXT_LENGTH), and tell the gateway (BACKEND_CONTEXT_LENGTH)"
          )
        ])
  ]
}

/** Asks until it is answered, without what stopped it before. */
const askTurn = Effect.fnUntraced(function* (url: string, key: string, model: string) {
  const walls: Array<Check> = []
  let turn: Turn | undefined = firstTurn
  while (turn !== undefined) {
    const [time, met]: [Duration.Duration, Met] = yield* Effect.timed(post(url, key, bodyOf(model, turn)))
    if (met.status === 200) {
      const what = `${amount(turn.bytes)} bytes, ${turn.tools} tools, a stream: ${took(time)}`
      const whole = met.text.trimEnd().endsWith("[DONE]")
      return [
        ...walls,
        ...nearWalls(met),
        whole
          ? ok("agents: first turn", what)
          : failed("agents: first turn", `${what}, and it broke off`, 'see the log, and "tollgate requests"')
      ]
    }
    const wall: Wall = wallOf(met)
    walls.push(wall.check)
    turn = wall.without === undefined ? undefined : { ...turn, ...wall.without }
  }
  return walls
})

/** Whether the body of a long session is admitted. A model that nobody has costs nothing. */
const sessionCheck = Effect.fnUntraced(function* (url: string, key: string) {
  const body = bodyOf("no-such-model-of-doctor", { bytes: sessionBytes, tools: 0, bound: undefined })
  const { message, type } = yield* post(url, key, body)
  return type === outcomes.payloadTooLarge.type
    ? warning(
        "agents: session",
        `${escapeText(message)}; 64k tokens of context are 256 KB and more`,
        "set MAX_REQUEST_BODY_BYTES to 4194304"
      )
    : ok("agents: session", `a body of ${amount(sessionBytes)} bytes is admitted`)
})

const surfaceChecks = (url: string) =>
  Effect.forEach(["responses", "messages"] as const, (surface) =>
    Effect.map(served(url, surface), (state) =>
      state === "on"
        ? ok(`agents: ${surface}`, `${surfaces[surface]} is served`)
        : warning(
            `agents: ${surface}`,
            `${surfaces[surface]} is not served`,
            `${surface === "responses" ? "Codex and OpenAI's own SDKs need" : "Claude Code needs"} EXTRA_SURFACES=${surface}`
          )
    )
  )

const windowCheck = (window: number | undefined): Check => {
  if (window === undefined)
    return warning(
      "agents: window",
      "the gateway does not know the window of the model",
      "set BACKEND_CONTEXT_LENGTH to the model server's OLLAMA_CONTEXT_LENGTH"
    )
  return window < leastWindow
    ? failed(
        "agents: window",
        `${amount(window)} tokens; a first turn takes 10,000 to 17,000`,
        "give the model server 65536 (OLLAMA_CONTEXT_LENGTH), and tell the gateway (BACKEND_CONTEXT_LENGTH)"
      )
    : ok("agents: window", `${amount(window)} tokens`)
}

export interface AgentQuestion {
  readonly url: string
  readonly key: Option.Option<string>
  /** undefined: the first that the key may use */
  readonly model: string | undefined
}

export const agentChecks = Effect.fnUntraced(
  function* ({ key, model: asked, url }: AgentQuestion) {
    if (Option.isNone(key))
      return [
        failed("agents", "no key", "set TOLLGATE_KEY, or give --key-file: the request is charged to it")
      ]
    const models = yield* modelsOf(url, key.value)
    const model = models.find(({ id }) => asked === undefined || id === asked || id === `${asked}:latest`)
    if (model === undefined)
      return [
        failed(
          "agents",
          asked === undefined
            ? `${url} lists no model for this key`
            : `${url} does not list ${escapeText(asked)}`,
          'see which models the key may use ("tollgate show-key")'
        )
      ]
    return [
      ...(yield* askTurn(url, key.value, model.id)),
      windowCheck(model.context_length),
      yield* sessionCheck(url, key.value),
      ...(yield* surfaceChecks(url))
    ]
  },
  (checks, { url }): Effect.Effect<ReadonlyArray<Check>> =>
    Effect.timeout(checks, "5 minutes").pipe(
      Effect.provide(FetchHttpClient.layer),
      Effect.catchTag("NoList", ({ mend, why }) => Effect.succeed([failed("agents", why, mend)])),
      Effect.catchCause(() =>
        Effect.succeed([failed("agents", `${url} did not answer`, "check --url, and that the gateway runs")])
      )
    )
)
