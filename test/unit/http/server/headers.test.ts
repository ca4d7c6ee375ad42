import { IncomingMessage } from "node:http"
import { Socket } from "node:net"
import { assert, describe, it } from "@effect/vitest"
import { Struct } from "effect"
import { readLength } from "../../../../src/domain/clientText.ts"
import { maxEndUser } from "../../../../src/domain/EndUser.ts"
import {
  clientHeaders,
  headerOf,
  headerValues,
  namedHeaderValues
} from "../../../../src/http/server/headers.ts"

import { sourcesIn, textOf } from "../../../support/sources.ts"

const incomingWith = (name: string, ...values: ReadonlyArray<string>): IncomingMessage => {
  const incoming = new IncomingMessage(new Socket())
  incoming.headers[name] = values.join(", ")
  incoming.rawHeaders.push(...values.flatMap((value) => [name, value]))
  return incoming
}

describe("the headers of a client", () => {
  for (const name of Struct.keys(clientHeaders)) {
    const most = clientHeaders[name]
    it(`when ${name} is as long as it may be, then it is read, and a longer one is not read whole`, () => {
      const fits = "v".repeat(most)
      assert.strictEqual(headerOf(incomingWith(name, fits), name), fits)
      const long = incomingWith(name, `${fits},w`)
      const read = name === "x-forwarded-for" ? "w" : fits
      assert.strictEqual(headerOf(long, name), read)
      assert.deepStrictEqual(headerValues(long, name), [read])
    })

    it(`when ${name} is looked at, then its bound is at most 1,024 characters`, () =>
      assert.isAtMost(most, 1024))
  }

  it("when an operator has named a header, then it has a bound too", () => {
    const values = namedHeaderValues(incomingWith("X-User", "u".repeat(16_000), "v"), "x-user")
    assert.deepStrictEqual(values, ["u".repeat(readLength(maxEndUser)), "v"])
  })

  it("when a header is sent twice, then both values are there", () =>
    assert.deepStrictEqual(headerValues(incomingWith("host", "a", "b"), "host"), ["a", "b"]))

  it("when src/http reads a header of a request, then in headers.ts, so that every header has a bound", () => {
    const reads =
      /\b(?:incoming|request|message)\.(?:raw)?headers(?:Distinct)?\b|\b(?:raw)?headers(?:Distinct)? \}: IncomingMessage|\brawHeaders\b/i
    const found = sourcesIn("src/http").filter((file) => reads.test(textOf(file)))
    assert.deepStrictEqual(found, ["src/http/server/headers.ts"])
  })
})
