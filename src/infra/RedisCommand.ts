/**
 * A command as ioredis sends it, with an `Answer` instead of a promise.
 *
 * The constructor of ioredis assigns a function literal to a property (`this.reject = (err) => …`). V8 puts such a function
 * into old space, so the command, its arguments and its reply stayed in memory until the next full collection, and every
 * scavenge copied them (`bench/RESULTS.md`). A command here has the methods of an ioredis command, without its constructor.
 * `test/unit/infra/RedisCommand.test.ts` compares both, so that a new version of ioredis cannot change this unnoticed.
 */
import { Command } from "ioredis"
import type { Answer } from "./CommandBatch.ts"

/** What ioredis returns for a command. Nobody waits for it. */
const settled = Promise.resolve()

/** The reply as text; a list of replies as a list of texts. Numbers and null stay. */
const textOf = (reply: unknown): unknown => {
  if (reply instanceof Buffer) return reply.toString()
  return Array.isArray(reply) ? reply.map(textOf) : reply
}

class AnsweredCommand {
  readonly name: string
  readonly args: Array<string>
  readonly replyEncoding = "utf8"
  readonly promise = settled
  inTransaction = false
  isResolved = false
  isSettled = false
  transformed = true
  /** ioredis would make an event for tracers, with a promise that tells how long the command took. */
  isTraced = true
  protocol = 2
  replyMapping = "legacy"
  readonly #answer: Answer<unknown>

  constructor(name: string, args: Array<string>, answer: Answer<unknown>) {
    this.name = name
    this.args = args
    this.#answer = answer
  }

  /** ioredis calls it with the reply. */
  resolve(reply: unknown): Promise<void> {
    if (this.isSettled) return settled
    this.isResolved = true
    this.isSettled = true
    this.#answer.succeed(textOf(reply))
    return settled
  }

  /** In a microtask: ioredis rejects commands while it changes its own state, and those who hear of it may send others. */
  reject(cause: unknown): void {
    if (this.isSettled) return
    this.isSettled = true
    queueMicrotask(() => this.#answer.fail(cause))
  }
}

Object.setPrototypeOf(AnsweredCommand.prototype, Command.prototype)

/** A command for `sendCommand`. The name must be in lower case, so that ioredis need not convert it each time. */
export const makeCommand = (name: string, args: Array<string>, answer: Answer<unknown>): Command => {
  const command: object = new AnsweredCommand(name, args, answer)
  if (command instanceof Command) return command
  throw new TypeError("not a command of ioredis")
}
