/**
 * The clients of ioredis, mended: what a server sends or leaves out must not end this process. The mends are of prototypes,
 * because ioredis makes clients of its own: for the sentinels, and for the nodes of a cluster.
 * `test/unit/infra/ioredis.test.ts` fails when a new version of ioredis needs another form of them.
 *
 * *Details* ioredis does not look at the promises of some commands of its own: those that subscribe again, and `ASKING`.
 * When such a command fails, nobody handles the rejection, and Node ends the process. An exception that a reply causes is thrown
 * once more in the next tick, where nobody catches it. Such replies are of a wrong type, or come without a question.
 */
import { Schema } from "effect"
import { Cluster, Command, Redis as Single } from "ioredis"
import dataHandler from "ioredis/built/DataHandler.js"
import { isAnswered } from "./RedisCommand.ts"

const { connect, sendCommand } = Single.prototype

/** ioredis prints an error that has no listener, with its stack. Its clients for the failovers of sentinels have none. */
Single.prototype.connect = function (callback) {
  if (this.listenerCount("error") === 0) this.on("error", () => undefined)
  return connect.call(this, callback)
}

/** No promise of a command ends the process, also when nobody looks at it. Whoever waits for it still gets the error. */
Single.prototype.sendCommand = function (command, stream) {
  const sent = sendCommand.call(this, command, stream)
  if (sent instanceof Promise && !isAnswered(command)) sent.catch(() => undefined)
  return sent
}

/** Node gives the module, Vitest its default. */
const { prototype: handler } = dataHandler.default ?? dataHandler

/** Throws at once. The parser calls it, and it closes the connection after an exception. */
Object.defineProperty(handler, "dispatch", {
  value: (handle: () => void) => handle()
})

const { handleError } = Cluster.prototype

/** A redirection without the port of a node is an error like any other. ioredis would throw in the midst of its own work. */
Cluster.prototype.handleError = function (error, ttl, handlers) {
  const { message } = error
  if (/^(?:MOVED|ASK) /.test(message) && !/^\w+ \d+ \S*:\d+/.test(message)) return handlers.defaults()
  return handleError.call(this, error, ttl, handlers)
}

const Slot = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 16_383 }))
const isClusterReply = Schema.is(
  Schema.Union([
    Schema.String,
    Schema.Array(
      Schema.TupleWithRest(Schema.Tuple([Slot, Slot]), [
        Schema.TupleWithRest(Schema.Tuple([Schema.Unknown]), [Schema.Unknown])
      ])
    )
  ])
)

/**
 * ioredis reads these replies in callbacks, where nobody catches. An exception here is a failure of the command. Only ioredis
 * sends them, and of `CLUSTER` only `SLOTS` and `INFO`; the gateway's own commands do not pass here.
 */
const demand = (name: string, isFit: (reply: unknown) => boolean): void =>
  Command.setReplyTransformer(name, (reply: unknown) => {
    if (!isFit(reply)) throw new TypeError(`the reply to ${name} has another form`)
    return reply
  })

demand("info", (reply) => typeof reply === "string")
demand("cluster", isClusterReply)

export { Cluster, Single }
