/** Asks the gateways that run: to read a change at once, to end requests, to list them. */
import { Effect, Schedule } from "effect"
import type { Answered, Question, Replica } from "../src/replicas/Replicas.ts"
import { freshnessMs } from "./environment.ts"
import { Needs } from "./Needs.ts"
import { counted, note, noteAsText } from "./terminal.ts"

/** A gateway needs some time to answer. */
const answerMs = 250

/** Waits for about as long as a gateway may use what it has read before. */
const ask = Effect.fnUntraced(function* (question: Question) {
  const { ask } = yield* Needs.replicas
  return yield* ask(question, (yield* freshnessMs) + answerMs)
})

export const replicaName = ({ host, id }: Pick<Replica, "host" | "id">): string => `${host}/${id.slice(0, 8)}`

/** The names of replicas that did not answer. */
export const silentNames = ({ silent }: Answered): string => silent.map(replicaName).join(", ")

const openIn = ({ answers }: Answered): number => answers.reduce((sum, { open }) => sum + open, 0)

const readSoon = "reads each change within KEY_FRESHNESS_MS (1 second unless it is set)"

/**
 * Waits until all gateways use what a command has changed, and says so. The change is made already, so nothing here fails the command.
 * Returns how many requests of the key are open. `key`: its prefix; null: any keys.
 */
export const inForce = Effect.fnUntraced(function* (key: string | null) {
  const asked = yield* Effect.option(ask({ action: "refresh", key }))
  if (asked._tag === "None") {
    yield* note(`The change is stored. The gateways could not be asked; each ${readSoon}.`)
    return 0
  }
  const { answers, silent } = asked.value
  if (silent.length > 0)
    yield* note(
      `In force on ${answers.length} of ${counted(answers.length + silent.length, "replica")}. Not answered: ${silentNames(asked.value)}, which ${readSoon}, or refuses all requests.`
    )
  else if (answers.length > 0) yield* noteAsText(`In force on ${counted(answers.length, "replica")}.`)
  return openIn(asked.value)
})

/** A request that comes to the model server between two tries is ended by the next. */
const again = Schedule.spaced("100 millis")

/** Ends the open requests of a key, and returns how many are left after some seconds. */
export const stopRequests = (key: string) =>
  ask({ action: "stop", key }).pipe(
    Effect.map(openIn),
    Effect.repeat({ schedule: again, until: (open) => open === 0, times: 50 })
  )

export const listOpen = ask({ action: "list", key: null })
