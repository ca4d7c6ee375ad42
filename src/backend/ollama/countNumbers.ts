/**
 * Counts the numbers of a JSON array without parsing them. An answer with embeddings has tens of thousands of numbers, and
 * parsing them takes three times as long (`bench/embeddings.ts`).
 *
 * It accepts exactly the arrays for which `JSON.parse` gives numbers that are finite as float32: clients that ask for base64
 * get float32. `test/unit/backend/countNumbers.test.ts` compares both.
 */
const [space, tab, lineFeed, carriageReturn] = [0x20, 0x09, 0x0a, 0x0d]
const [comma, minus, plus, point, openBracket, closeBracket] = [0x2c, 0x2d, 0x2b, 0x2e, 0x5b, 0x5d]
const [zero, nine, smallE, bigE] = [0x30, 0x39, 0x65, 0x45]

/** Every number with at most so many digits before its point and without an exponent is finite as a float32. */
const safeDigits = 38

const isDigit = (byte: number | undefined): boolean => byte !== undefined && byte >= zero && byte <= nine

const isSpace = (byte: number | undefined): boolean =>
  byte === space || byte === lineFeed || byte === carriageReturn || byte === tab

/** Whether the four bytes of `word` are digits: each has 3 as its upper half, also after 6 is added. */
const areDigits = (word: number): boolean =>
  (((word & 0xf0f0f0f0) ^ 0x30303030) | (((word + 0x06060606) & 0xf0f0f0f0) ^ 0x30303030)) === 0

const isFinite32 = (text: string): boolean => Number.isFinite(Math.fround(Number(text)))

/** Index of the first byte from `from` on that is not white space. */
const afterSpace = (json: Buffer, from: number): number => {
  let at = from
  while (isSpace(json[at])) at += 1
  return at
}

/** Index after the digits that begin at `from`. */
const afterDigits = (json: Buffer, from: number): number => {
  let at = from
  while (isDigit(json[at])) at += 1
  return at
}

/** The same for many digits: it looks at four at a time. */
const afterManyDigits = (json: Buffer, words: DataView, from: number): number => {
  let at = from
  while (at + 4 <= json.length && areDigits(words.getInt32(at))) at += 4
  return afterDigits(json, at)
}

/** Index after the number that begins at `from`; -1 when there is none, or when it is not finite as a float32. */
const afterNumber = (json: Buffer, words: DataView, from: number): number => {
  let at = json[from] === minus ? from + 1 : from
  const whole = at
  at = json[at] === zero ? at + 1 : afterDigits(json, at)
  const wholeDigits = at - whole
  if (wholeDigits === 0) return -1
  if (json[at] === point) {
    const fraction = at + 1
    at = afterManyDigits(json, words, fraction)
    if (at === fraction) return -1
  }
  let grows = false
  if (json[at] === smallE || json[at] === bigE) {
    const sign = json[at + 1]
    grows = sign !== minus
    const exponent = sign === minus || sign === plus ? at + 2 : at + 1
    at = afterDigits(json, exponent)
    if (at === exponent) return -1
  }
  const isSafe = wholeDigits <= safeDigits && !grows
  return isSafe || isFinite32(json.toString("latin1", from, at)) ? at : -1
}

/** Returns `undefined` when `json` is anything else than an array of numbers that are finite as float32. */
export const countNumbers = (json: Buffer): number | undefined => {
  const words = new DataView(json.buffer, json.byteOffset, json.length)
  const end = json.length - 1
  if (json[0] !== openBracket || json[end] !== closeBracket) return undefined
  let at = afterSpace(json, 1)
  if (at === end) return 0
  for (let count = 1; ; count += 1) {
    at = afterNumber(json, words, at)
    if (at === -1) return undefined
    if (json[at] !== comma) at = afterSpace(json, at)
    if (at === end) return count
    if (json[at] !== comma) return undefined
    at += 1
    if (!isDigit(json[at]) && json[at] !== minus) at = afterSpace(json, at)
  }
}
