/** One worker, as the primary sees it: its process, its channel, and what it has said. */
import cluster, { type Worker } from "node:cluster"
import { randomUUID } from "node:crypto"
import { Deferred, Effect, Predicate, type Scope } from "effect"
import type { Account } from "../../domain/Reservation.ts"
import { type Channel, makeChannel, type Wire } from "../Channel.ts"
import { environmentOf, type Identity } from "../identity.ts"
import { toPrimary } from "../protocol.ts"
import { makeMark } from "../requestIds.ts"

/** Accounts of a worker that are remembered, the last ones. */
export const maxAccounts = 10_000

export interface Ended {
  readonly code: number | null
  readonly signal: string | null
}

export interface Failure {
  readonly lines: ReadonlyArray<string>
  readonly exitCode: number
}

export interface Member {
  readonly identity: Identity
  readonly channel: Channel
  /** its address, once it listens */
  readonly listening: Deferred.Deferred<string>
  readonly ended: Deferred.Deferred<Ended>
  /** why it cannot start, when it has said so */
  failure: Failure | undefined
  /** what it is asked to do now */
  state: "starts" | "serves" | "stops"
  readonly accounts: Map<string, Account>
  /** SIGKILL */
  readonly kill: Effect.Effect<void>
}

const wireOf = (worker: Worker): Wire => ({
  send: (message) => void worker.process.send(message, undefined, undefined, () => undefined),
  listen: (listener) => {
    worker.on("message", listener)
    return () => void worker.off("message", listener)
  }
})

/**
 * Node hands a new connection to a worker, and forgets it when the worker dies before it has answered: the connection stays
 * open, and its client waits for ever (Node 24.21; 23 of about 40 deaths). Node sends one connection at a time to a worker.
 * The returned function closes the last one; closing one that was taken does nothing.
 */
const closerOfLastConnection = ({ process: child }: Worker): (() => void) => {
  let last: unknown
  const send = child.send.bind(child)
  Object.defineProperty(child, "send", {
    value: (...args: ReadonlyArray<unknown>) => {
      if (args[1] !== undefined && args[1] !== null) last = args[1]
      return Reflect.apply(send, child, args)
    }
  })
  return () => {
    if (Predicate.hasProperty(last, "close") && typeof last.close === "function") last.close()
  }
}

/** Starts the process of a worker. */
export const forkMember = Effect.fnUntraced(function* (
  place: Pick<Identity, "number" | "of" | "first">
): Effect.fn.Return<Member, never, Scope.Scope> {
  const identity: Identity = { ...place, id: randomUUID(), mark: makeMark() }
  const [listening, ended] = [yield* Deferred.make<string>(), yield* Deferred.make<Ended>()]
  const worker = yield* Effect.sync(() => cluster.fork(environmentOf(identity)))
  const closeLastConnection = closerOfLastConnection(worker)
  const end = (code: number | null, signal: string | null) => {
    closeLastConnection()
    Deferred.doneUnsafe(ended, Effect.succeed({ code, signal }))
  }
  worker.once("exit", end)
  // A process that could not be started has no exit.
  worker.on("error", () => (worker.process.pid === undefined ? end(null, "not started") : undefined))
  const member: Member = {
    identity,
    channel: yield* makeChannel(wireOf(worker)),
    listening,
    ended,
    failure: undefined,
    state: "starts",
    accounts: new Map(),
    kill: Effect.sync(() => void worker.process.kill("SIGKILL"))
  }
  member.channel.answer(toPrimary.listening, (address) =>
    Effect.sync(() => {
      if (member.state === "starts") member.state = "serves"
      Deferred.doneUnsafe(listening, Effect.succeed(address))
    })
  )
  member.channel.answer(toPrimary.failed, (failure) => Effect.sync(() => void (member.failure = failure)))
  member.channel.answer(toPrimary.serves, (account) =>
    Effect.sync(() => {
      member.accounts.delete(account.key)
      member.accounts.set(account.key, account)
      const [oldest] = member.accounts.keys()
      if (member.accounts.size > maxAccounts && oldest !== undefined) member.accounts.delete(oldest)
    })
  )
  return member
})
