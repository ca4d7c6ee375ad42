/** What must never be seen from outside, in whatever the gateway says, prints or stores. */

export interface Private {
  /** whole keys */
  readonly secrets: Iterable<string>
  /** host:port of the model server and the stores */
  readonly addresses: ReadonlyArray<string>
}

/** Words of our inside: a stack, a file of ours, a statement, a system call that failed. */
const inside =
  /node_modules|\.[cm]?[jt]s:\d|file:\/\/|\bat [\w.<>]+ \(|\/work\/|\/root\/|\/home\/|\bSELECT .+ FROM\b|\bINSERT INTO\b|\bUPDATE \w+ SET\b|ECONN[A-Z]+|EPIPE|ETIMEDOUT|ioredis|undici/

/** A key is known by its last 32 characters: the first twelve are public. */
const tailOf = (secret: string): string => secret.slice(12)

/** Keys and addresses in `text`. */
export const privateIn = (text: string, { secrets, addresses }: Private): ReadonlyArray<string> => [
  ...[...secrets]
    .filter((secret) => text.includes(tailOf(secret)))
    .map((secret) => `key ${secret.slice(0, 12)}…`),
  ...addresses.filter((address) => text.includes(address))
]

/** Likewise, and words of our inside: for what is said in our own words only. */
export const leaksIn = (text: string, known: Private): ReadonlyArray<string> => {
  const word = inside.exec(text)?.[0]
  return [...privateIn(text, known), ...(word === undefined ? [] : [`"${word}"`])]
}
