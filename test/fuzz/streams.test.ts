import { assert, it } from "@effect/vitest"
import { describe } from "vitest"
import { Random } from "./Random.ts"
import { full, keep, kept, seed, tell } from "./run.ts"
import { type Kind, mutatedAnswer, type Outcome, tryAnswer } from "./streams.ts"

const count = full ? 20_000 : 1000

const isKind = (name: string): name is Kind => name === "chat" || name === "generate"

describe("a mangled answer of the backend", () => {
  it(
    "when an answer is mangled, then it ends or fails, and the client reads well-formed frames with no foreign text",
    { timeout: 1_800_000 },
    () => {
      const random = new Random(seed)
      const outcomes: Record<Outcome, number> = { done: 0, failed: 0 }
      for (let i = 0; i < count; i += 1) {
        const kind: Kind = random.chance(2) ? "chat" : "generate"
        const answer = mutatedAnswer(kind, random)
        try {
          outcomes[tryAnswer(kind, answer)] += 1
        } catch (cause) {
          const name = keep(kind, answer.bytes)
          throw new Error(`run ${i} of seed ${seed}, kept as ${name}`, { cause })
        }
      }
      tell(`${count} answers: ${JSON.stringify(outcomes)}`)
      assert.isAbove(outcomes.done, count / 20)
      assert.isAbove(outcomes.failed, count / 20)
    }
  )

  for (const { name, target, bytes } of kept) {
    if (!isKind(target)) continue
    for (const [how, pieces] of [
      ["whole", [bytes]],
      ["byte by byte", [...bytes].map((byte) => Buffer.of(byte))]
    ] as const) {
      for (const ends of ["end", "reset"] as const) {
        it(`when ${name} of the corpus is played (${how}), then its end is: ${ends}`, () => {
          tryAnswer(target, { pieces, ends, intact: false })
        })
      }
    }
  }
})
