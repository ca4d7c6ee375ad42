/**
 * Which errors of the model server are the request's fault, by their text, and what the client reads instead of it. Such an
 * error is a 400 and no failure of the server: else one client could close the gateway to everybody.
 *
 * The texts are Ollama's own (0.11.4, 0.24.0, and llama-server's from 0.30 on). An unknown text is the server's failure.
 */

/** The only sentences a client reads about its request being refused by the backend. */
export const refusals = {
  context: "the prompt does not fit: it is longer than the maximum context length of the model",
  schema: "format: the model server cannot use this JSON schema",
  image: "images: the model server cannot read an image of this request",
  feature: "the model does not support a feature that this request uses",
  other: "the model cannot process this request as it is"
} as const

export type Refusal = keyof typeof refusals

/** Texts about the server itself, which may quote anything in its log: they are its failure whatever else they say. */
const serverAtFault =
  /runner|terminated|out of memory|system memory|resource limitations|error was encountered while running|panic|cuda|ggml|unable to (?:load|allocate)/i

/** The first match decides. */
const requestAtFault: ReadonlyArray<readonly [Refusal, RegExp]> = [
  [
    "context",
    /context (?:length|window|size)|prompt is (?:longer|too long)|input length|input is too (?:long|large)|prompt removed by truncation/i
  ],
  [
    "schema",
    /JSON schema in format|invalid format: [\\"]|grammar|vocabulary required for format|sampling context/i
  ],
  ["image", /\bimages?\b|\b(?:png|jpeg|gif|webp|bmp|tiff): /i],
  ["feature", /does not support|not supported for this model|this model only supports/i],
  [
    "other",
    /create new sequence|process inputs|no input provided|\btokeniz(?:e|ation)\b|unable to shift context|roles must alternate|\btemplate: \S*:\d|parsing tool call|unsupported value: (?:NaN|[+-]Inf)|token repeat limit/i
  ]
]

/** What of the request an error text blames; `undefined` when the server itself failed, or nobody can tell. */
export const refusalOf = (text: string): Refusal | undefined =>
  serverAtFault.test(text) ? undefined : requestAtFault.find(([, pattern]) => pattern.test(text))?.[0]

/** The model said the same token over and over, and the server ended the answer (an error line since September 2026). */
export const isRepeatLimit = (text: string): boolean => /token repeat limit/i.test(text)
