/** What `connect` knows of a client: where its settings are, and what they say of this gateway. The playground has it too. */
import type { Schema } from "effect"

/** The gateway and the model as a client has to know them. */
export interface Facts {
  /** without a path */
  readonly url: string
  readonly model: string
  /** tokens of the context window, prompt and answer together */
  readonly window: number
  /** most tokens of an answer */
  readonly output: number
}

/** Ollama's own, where nothing is set. */
export const smallestWindow = 4096

/** The most tokens of an answer, where nothing is given. `cap`: `NUM_PREDICT_CAP` */
export const outputIn = (window: number, cap: number): number => Math.min(cap, 16_384, Math.floor(window / 4))

/**
 * The tokens of a conversation from which on a client should shorten it: room for an answer and for an estimate that is 10 % too
 * low.
 */
export const compactAt = ({ output, window }: Facts): number => Math.floor((window - output) * 0.9)

/** The paths that a client calls. All but `chat` are off unless `EXTRA_SURFACES` names them. */
export const surfaces = {
  chat: "/v1/chat/completions",
  responses: "/v1/responses",
  messages: "/v1/messages"
} as const
export type Surface = keyof typeof surfaces

/** A file of settings. `~` is the home of the user. */
export interface Settings {
  readonly path: string
  readonly content: Content
}

/** A text is a file of its own; an object is merged into the JSON that is there. */
export type Content = string | Schema.JsonObject

export interface Client {
  readonly name: string
  readonly title: string
  readonly surface: Surface
  /** the version that was run as it stands here, and what it did; undefined: it was not run */
  readonly tried?: { readonly version: string; readonly did: "writes a file by its tool" | "answers" }
  /** tokens of its first request, tools and system prompt with it; undefined: little */
  readonly firstRequest?: number
  /** variables of the environment; `$TOLLGATE_KEY` is the key */
  readonly environment?: (facts: Facts) => Readonly<Record<string, string>>
  /** by the path of their file */
  readonly settings?: (facts: Facts) => Readonly<Record<string, Content>>
  /** what to type when the environment is set */
  readonly run?: (facts: Facts) => string
  readonly notes: ReadonlyArray<string>
}

export const notServed = ({ surface, title }: Client): string =>
  `${title} needs ${surfaces[surface]}, which this gateway does not serve: start it with EXTRA_SURFACES=${surface}`

/** Says that the first request of a client does not fit; undefined: it does. */
export const tooSmall = (
  { firstRequest = 0, title }: Client,
  { output, window }: Facts
): string | undefined =>
  firstRequest > window - output
    ? `a window of ${window} is too small: the first request of ${title} has some ${firstRequest} tokens`
    : undefined
