import { assert, it } from "@effect/vitest"
import { Cause, Effect, Exit } from "effect"
import { describe } from "vitest"
import { withBackend } from "../unit/backend/calls.ts"
import { Random } from "./Random.ts"
import { isSurface, mutatedBody, surfaceNames, tryBody, type Verdict } from "./requests.ts"
import { full, keep, kept, seed, tell } from "./run.ts"

const count = full ? 100_000 : 5000

describe("a mangled request body", () => {
  it.live(
    "when a body is mangled, then it is refused in its own words or reaches the backend as what was decided on",
    () =>
      withBackend((backend) =>
        Effect.gen(function* () {
          const random = new Random(seed)
          const verdicts: Record<Verdict, number> = { unreadable: 0, refused: 0, forbidden: 0, sent: 0 }
          for (let i = 0; i < count; i += 1) {
            const surface = surfaceNames[random.int(surfaceNames.length)] ?? "messages"
            const bytes = mutatedBody(surface, random)
            const exit = yield* Effect.exit(tryBody(backend, surface, bytes))
            if (Exit.isFailure(exit)) {
              const name = keep(surface, bytes)
              return assert.fail(`run ${i} of seed ${seed}, kept as ${name}: ${Cause.pretty(exit.cause)}`)
            }
            verdicts[exit.value] += 1
          }
          tell(`${count} request bodies: ${JSON.stringify(verdicts)}`)
          // A generator that only makes nonsense tests nothing.
          assert.isAbove(verdicts.sent, count / 20)
          assert.isAbove(verdicts.refused, count / 20)
        })
      ),
    { timeout: 1_800_000 }
  )

  for (const { name, target, bytes } of kept) {
    if (!isSurface(target)) continue
    it.live(`when ${name} of the corpus is sent, then the same holds`, () =>
      withBackend((backend) => tryBody(backend, target, bytes))
    )
  }
})
