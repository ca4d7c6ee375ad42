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

const encode = (text: string): string => `$${Buffer.byteLength(text)}\r\n${text}\r\n`

/** Arguments that many commands have in common. They are encoded once: 4 KB and 1.3 µs of a command of ten keys were that. */
export class SharedArguments {
  readonly texts: ReadonlyArray<string>
  readonly encoded: string

  constructor(texts: ReadonlyArray<string>) {
    this.texts = texts
    // A copy: V8 would keep a joined text in parts, and join them for each command.
    this.encoded = Buffer.from(texts.map(encode).join("")).toString()
  }
}

export type CommandArgument = string | SharedArguments

class AnsweredCommand {
  readonly name: string
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
  readonly #arguments: ReadonlyArray<CommandArgument>
  readonly #answer: Answer<unknown>
  #texts: Array<string> | undefined

  constructor(name: string, args: ReadonlyArray<CommandArgument>, answer: Answer<unknown>) {
    this.name = name
    this.#arguments = args
    this.#answer = answer
  }

  /** ioredis looks for the slot of a cluster here, and quotes them in errors. */
  get args(): Array<string> {
    this.#texts ??= this.#arguments.flatMap((one) => (typeof one === "string" ? [one] : one.texts))
    return this.#texts
  }

  /** The command as it is written to the connection. */
  toWritable(): string {
    let count = 1
    let text = encode(this.name)
    for (const one of this.#arguments) {
      if (typeof one === "string") {
        count += 1
        text += encode(one)
      } else {
        count += one.texts.length
        text += one.encoded
      }
    }
    return `*${count}\r\n${text}`
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

/** Whether `makeCommand` made it. Its promise never fails. */
export const isAnswered = (command: object): boolean => command instanceof AnsweredCommand

/** A command for `sendCommand`. The name must be in lower case, so that ioredis need not convert it each time. */
export const makeCommand = (
  name: string,
  args: ReadonlyArray<CommandArgument>,
  answer: Answer<unknown>
): Command => {
  const command: object = new AnsweredCommand(name, args, answer)
  if (command instanceof Command) return command
  throw new TypeError("not a command of ioredis")
}
