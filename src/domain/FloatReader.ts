/**
 * Reads the numbers of a vector as float32, without memory for their text or for all of them. With `JSON.parse`, base64 of
 * a vector takes half as long again (`bench/RESULTS.md`). The results are the same, those of `Math.fround(Number(text))`:
 *
 * - Integers up to 2^53 and powers of ten up to 10^22 are exact in float64, so their quotient is rounded once, as `Number` does.
 * - Further digits of a fraction are not read: the number lies between two quotients then. When both are the same float32, the
 *   number is that too. Otherwise `Number` reads its text.
 */
const [space, comma, minus, point, closeBracket] = [0x20, 0x2c, 0x2d, 0x2e, 0x5d]
const [zero, smallE, bigE] = [0x30, 0x65, 0x45]

const powers = Float64Array.from({ length: 23 }, (_, exponent) => Number(`1e${exponent}`))
/** Below it one more digit can be added. */
const enough = 1e14

/** The value of a digit; more than 9 for other bytes. */
const digitOf = (byte: number | undefined): number => ((byte ?? 0) - zero) & 0xff

const isPart = (byte: number): boolean => byte > space && byte !== comma && byte !== closeBracket

export class FloatReader {
  readonly #json: Buffer
  #at = 1

  /** `json`: an array of numbers, which was checked (`Vector`) */
  constructor(json: Buffer) {
    this.#json = json
  }

  /** Fills `floats` with the next numbers. Returns how many there were: at the end of the vector fewer than it has places. */
  readInto(floats: Float32Array): number {
    const json = this.#json
    const end = json.length - 1
    let at = this.#at
    let count = 0
    while (count < floats.length) {
      while (at < end && digitOf(json[at]) > 9 && json[at] !== minus) at += 1
      if (at >= end) break
      const start = at
      if (json[at] === minus) at += 1
      let digits = 0
      let decimals = 0
      let isExact = true
      for (let digit = digitOf(json[at]); digit <= 9; digit = digitOf(json[at])) {
        digits = digits * 10 + digit
        at += 1
      }
      if (json[at] === point) {
        at += 1
        for (let digit = digitOf(json[at]); digit <= 9; digit = digitOf(json[at])) {
          if (digits < enough) {
            digits = digits * 10 + digit
            decimals += 1
          } else isExact = false
          at += 1
        }
      }
      const power = powers[decimals] ?? 0
      const float = Math.fround(digits / power)
      const isKnown =
        digits < Number.MAX_SAFE_INTEGER &&
        power > 0 &&
        json[at] !== smallE &&
        json[at] !== bigE &&
        (isExact || float === Math.fround((digits + 1) / power))
      if (isKnown) floats[count] = json[start] === minus ? -float : float
      else {
        for (let byte = json[at]; byte !== undefined && isPart(byte); byte = json[at]) at += 1
        floats[count] = Number(json.toString("latin1", start, at))
      }
      count += 1
    }
    this.#at = at
    return count
  }
}
