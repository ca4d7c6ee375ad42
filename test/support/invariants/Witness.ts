/** What a gateway under test was seen to say: its answers, as the clients of the tests got them, and its log lines. */

/** An answer as a client got it. */
export interface Answer {
  readonly status: number
  /** names in lower case */
  readonly headers: { get(name: string): string | null | undefined }
  readonly body: string
  /** an answer to HEAD */
  readonly bodiless: boolean
  /** undefined when several were sent at once */
  readonly request: Asked | undefined
}

export interface Asked {
  readonly method: string
  readonly target: string
  /** sent byte by byte, so it may be no HTTP at all */
  readonly raw: boolean
}

export interface Witness {
  readonly answers: Array<Answer>
  readonly lines: Array<string>
}

const witnesses = new Map<string, Witness>()

/** From now on what is heard of the gateway at `origin` is kept, until somebody takes it away. */
export const listen = (origin: string, witness: Witness): (() => void) => {
  witnesses.set(origin, witness)
  return () => void witnesses.delete(origin)
}

/** More than a case can mean to look at: a flood must not become one of memory. */
const most = 20_000

export const heard = (url: string, answer: Answer): void => {
  const answers = witnesses.get(new URL(url).origin)?.answers
  if (answers !== undefined && answers.length < most) answers.push(answer)
}

/** The whole keys that were made in this test file: none may ever be seen again. */
export const secrets = new Set<string>()

/** The one request in `bytes`; undefined when there is none that can be read, or more than one. */
export const requestIn = (bytes: string | Uint8Array): Asked | undefined => {
  const text = Buffer.from(bytes).toString("latin1")
  const lines = [...text.matchAll(/^(\S+) (\S+) HTTP\/\d\.\d\r?$/gm)]
  const [, method, target] = lines[0] ?? []
  return lines.length !== 1 || method === undefined || target === undefined
    ? undefined
    : { method, target, raw: true }
}
