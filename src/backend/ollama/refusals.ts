/**
 * Decides by their text which errors of the model server are caused by the request, and which sentence the client
 * gets. Such an error is a 400 and no failure of the server; otherwise one client could open the circuit for
 * all clients.
 *
 * The texts are those of Ollama (0.11.4, 0.24.0) and of llama-server (from 0.30 on). An unknown text counts as a
 * failure of the server.
 */

/** The only sentences a client gets when the backend refuses its request. */
export const refusals = {
  context: "the prompt does not fit: it is longer than the maximum context length of the model",
  schema: "format: the model server cannot use this JSON schema",
  image: "images: the model server cannot read an image of this request",
  level: "think: the model takes true or false, and no level",
  feature: "the model does not support a feature that this request uses",
  other: "the model cannot process this request as it is"
} as const

export type Refusal = keyof typeof refusals

/**
 * Texts about the server itself. They may quote its log, so they count as its failure even if another pattern
 * matches.
 */
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
  ["level", /think value .{1,40} is not supported/i],
  ["feature", /does not support|not supported for this model|this model only supports/i],
  [
    "other",
    /create new sequence|process inputs|no input provided|\btokeniz(?:e|ation)\b|unable to shift context|roles must alternate|\btemplate: \S*:\d|parsing tool call|jinja exception|(?:unexpected|unknown|invalid|unsupported)(?: message)? role|unsupported value: (?:NaN|[+-]Inf)|token repeat limit/i
  ]
]

/** Which part of the request an error text blames; undefined for a failure of the server or an unknown text. */
export const refusalOf = (text: string): Refusal | undefined =>
  serverAtFault.test(text) ? undefined : requestAtFault.find(([, pattern]) => pattern.test(text))?.[0]

/** Whether the server ended the answer because the model repeated one token (an error line since September 2026). */
export const isRepeatLimit = (text: string): boolean => /token repeat limit/i.test(text)
