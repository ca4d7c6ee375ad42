/** Gateways by others: those whose program is given, and with `--peers` those that a registry of packages has. */
import { Effect } from "effect"
import type { Contender } from "./contenders.ts"
import { bifrost } from "./peers/bifrost.ts"
import { gomodel } from "./peers/gomodel.ts"
import { litellm } from "./peers/litellm.ts"
import type { Peer, Surroundings } from "./peers/peer.ts"
import { portkey } from "./peers/portkey.ts"
import { bodyOf, table, type Work } from "./works.ts"

const known: ReadonlyArray<Peer> = [bifrost, gomodel, portkey, litellm]

/** The status and the body of one answer. */
const ask = (contender: Contender, work: Work, key: string) =>
  Effect.tryPromise(async (signal) => {
    const response = await fetch(contender.url + work.path, {
      method: "POST",
      signal,
      headers: { "content-type": "application/json", authorization: `Bearer ${key}`, ...contender.headers },
      body: bodyOf(work, contender.prefix)
    })
    return { status: response.status, body: await response.text() }
  })

/** The line of a failed installation that names its reason; `Command failed` only repeats what was run. */
const reasonOf = (error: unknown): string => {
  const lines = String(error).split("\n")
  const reason = lines.slice(1).find((line) => /error/i.test(line)) ?? lines[0] ?? ""
  return reason.slice(0, 200)
}

/**
 * A peer that has answered a known key with 200, an object and a stream. What it answers to an unknown key is printed: a peer that checks no key
 * does less than one that does.
 */
export const startPeer = Effect.fnUntraced(function* (
  peer: Peer,
  program: string | undefined,
  surroundings: Surroundings,
  say: (line: string) => Effect.Effect<void>
) {
  const contender = yield* peer.start(program, surroundings)
  for (const [form, work] of [
    ["an object", table.json32],
    ["a stream", table.stream32]
  ] as const) {
    const { status, body } = yield* ask(contender, work, contender.keys.good)
    if (status !== 200)
      return yield* Effect.fail(`answered ${status} to its own key, asked for ${form}: ${body.slice(0, 150)}`)
  }
  const unknown = yield* ask(contender, table.json32, "sk-bf-unknown")
  yield* say(`${peer.name}: ${peer.has}. An unknown key: ${unknown.status}.`)
  return contender
})

/** Those that can be had here; why another cannot is said in a line, and the run goes on without it. */
export const peers = Effect.fnUntraced(function* (
  surroundings: Surroundings,
  install: boolean,
  say: (line: string) => Effect.Effect<void>
) {
  const there: Array<Contender> = []
  for (const peer of known) {
    const program = process.env[peer.variable]
    if (program === undefined && !(install && peer.installs)) continue
    yield* Effect.matchEffect(startPeer(peer, program, surroundings, say), {
      onSuccess: (contender) => Effect.sync(() => void there.push(contender)),
      onFailure: (error) => say(`${peer.name} is left out: ${reasonOf(error)}`)
    })
  }
  return there
})
