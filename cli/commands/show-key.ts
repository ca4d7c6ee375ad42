import { Effect, Option, Stdio, Stream } from "effect"
import { Command, Flag } from "effect/cli"
import { InvalidValue } from "../../src/admin/Errors.ts"
import { Registry } from "../../src/admin/Registry.ts"
import * as flags from "../flags.ts"
import { keyFacts, keyHints } from "../tables.ts"
import { note, show } from "../terminal.ts"

/** Far more than a key. */
const maxInput = 4096

/** The prefix of the key on stdin. The rest is forgotten. */
const fromStdin = Effect.gen(function* () {
  const { stdin } = yield* Stdio.Stdio
  const text = yield* stdin.pipe(
    Stream.decodeText(),
    Stream.scan(
      () => "",
      (before: string, part: string) => before + part
    ),
    Stream.takeUntil((text) => text.length > maxInput || text.includes("\n")),
    Stream.runLast,
    Effect.mapError(
      () => new InvalidValue({ field: "key-from-stdin", expected: "given with a key on stdin" })
    )
  )
  return yield* Effect.mapError(
    Effect.fromOption(Option.flatMap(text, (found) => flags.readPrefix(found.trim()))),
    () => new InvalidValue({ field: "key-from-stdin", expected: "given with one key on stdin" })
  )
})

export const showKey = Command.make(
  "show-key",
  {
    prefix: Flag.optional(flags.prefix("prefix")),
    keyFromStdin: Flag.Boolean("key-from-stdin").pipe(
      Flag.withDescription("Read a whole key from stdin, so that it is in no history"),
      Flag.withDefault(false)
    )
  },
  Effect.fnUntraced(function* ({ keyFromStdin, prefix }) {
    const registry = yield* Registry
    if (Option.isSome(prefix) === keyFromStdin) {
      return yield* new InvalidValue({
        field: "prefix",
        expected: "given, or --key-from-stdin, but not both"
      })
    }
    const key = yield* registry.showKey(Option.isSome(prefix) ? prefix.value : yield* fromStdin)
    yield* show(key, keyFacts(key))
    yield* Effect.forEach(keyHints(key), note, { discard: true })
  })
).pipe(
  Command.withDescription("Show one key: tenant, limits, budgets, last use, and why it may not work"),
  Command.withExamples([
    { command: "tollgate show-key --prefix tg_4fJ2kQ9sX" },
    { command: "tollgate show-key --key-from-stdin < key.txt", description: "Whose key is this?" }
  ])
)
