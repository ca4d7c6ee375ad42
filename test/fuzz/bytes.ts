/** Changes that know nothing of what the bytes mean. */
import type { Random } from "./Random.ts"

const tokens = [
  "\u0000",
  "\n",
  "\r\n",
  "\r\n\r\n",
  '"',
  "\\",
  "{",
  "}",
  "[",
  "]",
  ",",
  ":",
  "\ufeff",
  "\\u0000",
  " "
] as const
const broken = [Buffer.from([0xff]), Buffer.from([0xc0, 0xaf]), Buffer.from([0xed, 0xa0, 0x80])] as const

const once = (bytes: Buffer, random: Random): Buffer => {
  const at = random.int(bytes.length + 1)
  const to = Math.min(bytes.length, at + 1 + random.int(random.chance(4) ? 200 : 4))
  const [before, piece, after] = [bytes.subarray(0, at), bytes.subarray(at, to), bytes.subarray(to)]
  switch (random.int(7)) {
    case 0:
      return Buffer.concat([before, after])
    case 1:
      return Buffer.concat([before, piece, piece, after])
    case 2:
      return Buffer.concat([before, Buffer.from(random.pick(tokens)), after])
    case 3:
      return Buffer.concat([before, Buffer.from(random.pick(tokens)), piece, after])
    case 4:
      return Buffer.concat([before, random.pick(broken), piece, after])
    case 5:
      return before
    default:
      return Buffer.concat([before, Buffer.from(piece.map((byte) => byte ^ (1 << random.int(8)))), after])
  }
}

export const mutateBytes = (bytes: Buffer, random: Random, most = 3): Buffer => {
  let mutated = bytes
  for (let i = 1 + random.int(most); i > 0; i -= 1) mutated = once(mutated, random)
  return mutated
}

/** The same bytes in pieces, as a network might bring them. */
export const cut = (bytes: Buffer, random: Random): ReadonlyArray<Buffer> => {
  const pieces: Array<Buffer> = []
  const size = random.pick([1, 7, 50, 1000, 100_000])
  for (let at = 0; at < bytes.length;) {
    const to = at + 1 + random.int(size)
    pieces.push(bytes.subarray(at, to))
    at = to
  }
  return pieces
}
