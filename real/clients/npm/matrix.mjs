/** The cases that every client is asked to do. A client's script hands its own to `run`. */
import { readFileSync } from "node:fs"

const { TOLLGATE_KEY, TOLLGATE_LIMITED_KEY, TOLLGATE_URL, TOLLGATE_WRONG_KEY } = process.env

export const url = TOLLGATE_URL ?? ""
export const key = TOLLGATE_KEY ?? ""
export const wrongKey = TOLLGATE_WRONG_KEY ?? ""
/** A key whose requests of this minute are used up. */
export const limitedKey = TOLLGATE_LIMITED_KEY ?? ""

export const text = "Say hello."
export const messages = [{ role: "user", content: text }]
export const tooLong = [{ role: "user", content: "x".repeat(300_000) }]
export const forbiddenModel = "nobody/has:this"

export const schema = {
  type: "object",
  properties: { kind: { type: "string", enum: ["a", "b"] } },
  required: ["kind"],
  additionalProperties: false
}

export const tool = {
  type: "function",
  function: {
    name: "get_weather",
    description: "The weather in a city",
    parameters: {
      type: "object",
      properties: { city: { type: "string", description: "a city" } },
      required: ["city"]
    }
  }
}

class NotOffered extends Error {}

/** The client has no function for it. */
export const notOffered = (why) => () => {
  throw new NotOffered(why)
}

export const expect = (truth, what) => {
  if (!truth) throw new Error(what)
}

/** The error that `call` is rejected with. */
export const refusal = async (call) => {
  try {
    await call()
  } catch (error) {
    return error
  }
  throw new Error("not refused")
}

export const collected = async (parts) => {
  const all = []
  for await (const part of parts) all.push(part)
  return all
}

const versionOf = (name) =>
  JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url), "utf8")).version

/** One line of JSON for each case. */
export const run = async (client, name, cases) => {
  for (const [title, ask] of Object.entries(cases)) {
    const began = performance.now()
    const line = { client, version: versionOf(name), case: title, result: "works", detail: "" }
    try {
      line.detail = String((await ask()) ?? "")
    } catch (error) {
      line.result = error instanceof NotOffered ? "not offered" : "fails"
      line.detail =
        error instanceof NotOffered ? error.message : `${error.name}: ${error.message}`.slice(0, 600)
    }
    line.ms = Math.round(performance.now() - began)
    process.stdout.write(`${JSON.stringify(line)}\n`)
  }
}
