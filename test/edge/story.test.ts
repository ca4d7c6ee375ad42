/** A request stays short enough to be read: what runs for one streamed chat is counted while it runs. `npm run story` shows it. */
import * as path from "node:path"
import { assert } from "@effect/vitest"
import { Effect, Layer, Redacted } from "effect"
import { tellStory } from "../support/story/Story.ts"
import { layerTestDatabase, TestDatabase } from "../support/TestPostgres.ts"
import { layerTestRedis, TestRedis } from "../support/TestRedis.ts"
import { inWorld } from "../support/testWith.ts"

/** A little more than what runs, because two runs differ by a few. Lower them when less runs. */
const most = { functions: 540, files: 103, changes: 685 }

inWorld(Layer.mergeAll(layerTestDatabase, layerTestRedis))("the story", (test) => {
  test("when one chat is streamed, then no more functions, files and changes of file than allowed are on its way", function* () {
    const stores = {
      databaseUrl: Redacted.value((yield* TestDatabase).url),
      redisUrl: (yield* TestRedis).url
    }
    // On a busy machine, work in the background runs meanwhile.
    const { changes, files, functions } = yield* Effect.repeat(
      tellStory(path.resolve(import.meta.dirname, "../.."), stores),
      { times: 4, while: (story) => story.functions > most.functions || story.changes > most.changes }
    )
    assert.isAtMost(functions, most.functions)
    assert.isAtMost(files, most.files)
    assert.isAtMost(changes, most.changes)
    // Fewer would be no chat.
    assert.isAbove(functions, 100)
  })
})
