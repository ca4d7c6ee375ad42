/** Our commands beside those of ioredis. */
import { assert, describe, it } from "@effect/vitest"
import { Command } from "ioredis"
import { makeCommand, SharedArguments } from "../../../src/infra/RedisCommand.ts"
import { heldAfter } from "../../support/youngGarbage.ts"

const script = ["2f1e", "2", "{a}:windows", "{a}:request:ä", "1 2 3 ", ""]
const ignored = { succeed: () => undefined, fail: () => undefined }

/** What came to the answer of a command. */
const told = () => {
  const replies: Array<unknown> = []
  const answer = {
    succeed: (reply: unknown) => void replies.push(reply),
    fail: (cause: unknown) => void replies.push(`failed: ${String(cause)}`)
  }
  return { replies, command: makeCommand("evalsha", script, answer) }
}

describe("a command with an answer", () => {
  it("when it is written, then it has the bytes, keys and slot of a command of ioredis", () => {
    const theirs = new Command("evalsha", script)
    const [sha = "", count = "", ...rest] = script
    for (const args of [script, [sha, count, new SharedArguments(rest)], [new SharedArguments(script)]]) {
      const ours = makeCommand("evalsha", args, ignored)
      assert.strictEqual(ours.toWritable({}), theirs.toWritable({}))
      assert.deepStrictEqual([ours.args, ours.getKeys()], [theirs.args, theirs.getKeys()])
      assert.strictEqual(ours.getSlot(), theirs.getSlot())
    }
  })

  it("when ioredis gives its commands another property, then ours is looked at again", () => {
    const own = Object.keys(makeCommand("evalsha", [], ignored))
    const inPrototype = ["resolve", "reject", "args"]
    const unset = ["errorStack", "callback"]
    assert.sameMembers([...own, ...inPrototype, ...unset], Object.keys(new Command("evalsha", [])))
  })

  it("when the reply comes, then the answer gets it as ioredis would give it, as text", async () => {
    for (const reply of [Buffer.from("ä 1"), 7, null, [Buffer.from("b"), 1, [Buffer.from("c"), null]]]) {
      const theirs = new Command("evalsha", script, { replyEncoding: "utf8" })
      theirs.resolve(reply)
      const { command, replies } = told()
      command.resolve(reply)
      assert.deepStrictEqual(replies, [await theirs.promise])
    }
  })

  it("when it is rejected, then its answer hears of it a moment later, and only once", async () => {
    const { command, replies } = told()
    command.reject(new Error("closed"))
    command.reject(new Error("again"))
    command.resolve(Buffer.from("late"))
    assert.deepStrictEqual(replies, [])
    await Promise.resolve()
    assert.deepStrictEqual(replies, ["failed: Error: closed"])
  })

  it("when it has its reply, then it is collected without a full collection", () => {
    const use = (held: Array<number>) => {
      const answer = { succeed: () => void held.fill(0), fail: () => void held.fill(1) }
      makeCommand("evalsha", script, answer).resolve(null)
    }
    heldAfter(3, use)
    assert.isBelow(heldAfter(3, use), 3)
  })

  it("when a command of ioredis has its reply, then it stays until a full collection; once it does not, ours can go", () => {
    const held = heldAfter(3, (list) => {
      const command = Object.assign(new Command("get", ["key"]), { list })
      command.resolve(null)
    })
    assert.isAbove(held, 40)
  })
})
