import { BlockList } from "node:net"
import { assert, describe, it } from "@effect/vitest"
import { clientIpOf } from "../../../src/http/arrival.ts"

const nobody = new BlockList()
const proxies = new BlockList()
proxies.addSubnet("10.0.0.0", 8)

describe("the client's address", () => {
  it("when no proxy is trusted, then it is the peer of the socket", () => {
    assert.strictEqual(clientIpOf("::ffff:127.0.0.1", "6.6.6.6", nobody), "127.0.0.1")
    assert.strictEqual(clientIpOf("::1", undefined, nobody), "::1")
  })

  it("when proxies are trusted, then it is the right-most hop that is no trusted proxy", () => {
    assert.strictEqual(clientIpOf("10.0.0.1", "6.6.6.6, 7.7.7.7, 10.0.0.2", proxies), "7.7.7.7")
    assert.strictEqual(clientIpOf("8.8.8.8", "6.6.6.6", proxies), "8.8.8.8")
    assert.strictEqual(clientIpOf("10.0.0.1", undefined, proxies), "10.0.0.1")
    // In all their forms (`server/addresses.test.ts`).
    const hops = "6.6.6.6, [2001:db8::1]:443, 10.0.0.2:80"
    assert.strictEqual(clientIpOf("::ffff:a00:1", hops, proxies), "2001:db8::1")
  })

  it("when a hop is no address, then it is the last address before it", () => {
    assert.strictEqual(clientIpOf("10.0.0.1", "6.6.6.6, <script>, 10.0.0.3", proxies), "10.0.0.3")
    assert.strictEqual(clientIpOf("10.0.0.1", "", proxies), "10.0.0.1")
  })
})
