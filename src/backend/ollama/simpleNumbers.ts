/**
 * Counts the numbers of a vector in the form that embedding models have nearly always: one digit before the point, no
 * exponent, no blanks. It runs a WebAssembly program, `simpleNumbers.wat`, which checks 16 bytes at a time and takes a fifth
 * of the time of `countNumbers.ts` (`bench/embeddings.ts`). That one defines what a vector is, and counts all others.
 */

/** Bytes of the longest vector that is counted here: the memory of the program, less what it writes around the vector. */
export const longestBytes = 4 * 65_536 - 16

const [openBracket, closeBracket] = [0x5b, 0x5d]

/** `simpleNumbers.wat`, assembled. `test/unit/backend/simpleNumbers.test.ts` assembles it again and prints it when it differs. */
export const program =
  "AGFzbQEAAAABBgFgAX8BfwMCAQAFBAEBBAQHEgIGbWVtb3J5AgAFY291bnQAAAryAQHvAQICfwJ7QQFBLDoAACAA/QwsMC4wMDAw" +
  "MDAwMDAwMDAw/QsEAEECIQH9DB8fHx8fHx8fHx8fHx8fHx8hBANAIAH9AAQAQSz9D/1xIQMgBP0MHh0aABcXFxcXFxcXFxcAACAD" +
  "/Q79DAoICAABAQEBAQEBAQEBAAAgAUEBa/0ABABBLP0P/XH9Dv0MBAQIAAgICAgICAgICAgAACABQQJr/QAEAEEs/Q/9cf0O/VD9" +
  "UP1OIQQgAiADQQD9D/0j/WRpaiECIAFBEGohASABIABNDQALIAJBfyAE/QwfHx8fHx8fHx8fHx8fHx8f/SP9YxsL"

/** What is used here of JavaScript's API; Node's types do not have it. */
declare global {
  namespace WebAssembly {
    const validate: (program: Uint8Array) => boolean
    const Module: new (program: Uint8Array) => object
    class Memory {
      readonly buffer: ArrayBuffer
    }
    class Instance {
      readonly exports: Readonly<Record<string, unknown>>
      constructor(module: object)
    }
  }
}

const load = () => {
  const bytes = Buffer.from(program, "base64")
  // Not where V8 has no SIMD: it needs SSE 4.1 or NEON.
  if (!WebAssembly.validate(bytes)) return undefined
  const { count, memory } = new WebAssembly.Instance(new WebAssembly.Module(bytes)).exports
  if (!(memory instanceof WebAssembly.Memory) || typeof count !== "function") return undefined
  return { memory: new Uint8Array(memory.buffer), count: (last: number): number => Number(count(last)) }
}
const loaded = load()

/** Returns `undefined` for a vector of another form, for a longer one, and for what is no vector. */
export const countSimpleNumbers = (json: Buffer): number | undefined => {
  const { length } = json
  if (loaded === undefined || length < 3 || length > longestBytes) return undefined
  if (json[0] !== openBracket || json[length - 1] !== closeBracket) return undefined
  loaded.memory.set(json, 1)
  const numbers = loaded.count(length)
  return numbers === -1 ? undefined : numbers
}
