import { assert, it } from "@effect/vitest"
import { addressGroup, addressOf, peerOf } from "../../../../src/http/server/addresses.ts"

it("when an address is IPv4, then it is a group of its own, and an IPv6 address is in the group of its /64", () => {
  for (const address of ["192.0.2.1", "127.0.0.1", ""]) assert.strictEqual(addressGroup(address), address)
  for (const [address, group] of [
    ["2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"],
    ["2001:db8:1:2::", "2001:db8:1:2::/64"],
    ["2001:db8::1", "2001:db8::/64"],
    ["2001:db8::1:2:3:4:5", "2001:db8:0:1::/64"],
    ["::1", "::/64"],
    ["::", "::/64"],
    ["1::", "1::/64"],
    ["64:ff9b::192.0.2.1", "64:ff9b::/64"],
    ["fe80::1%eth0", "fe80::/64"]
  ] as const)
    assert.strictEqual(addressGroup(address), group, address)
})

it("when an address has a port, brackets, capitals or an IPv4 address inside, then it has one form all the same", () => {
  for (const [text, address] of [
    ["203.0.113.9", "203.0.113.9"],
    ["203.0.113.9:52344", "203.0.113.9"],
    ["2001:DB8:0:0::1", "2001:db8::1"],
    ["[2001:db8::1]", "2001:db8::1"],
    ["[2001:db8::1]:443", "2001:db8::1"],
    ["::ffff:203.0.113.9", "203.0.113.9"],
    ["::ffff:cb00:7109", "203.0.113.9"],
    ["[::ffff:203.0.113.9]:443", "203.0.113.9"],
    ["[fe80::1%3]:443", "fe80::1"]
  ] as const)
    assert.strictEqual(addressOf(text), address, text)
  for (const text of [
    "",
    "unknown",
    "_hidden",
    "203.0.113",
    "203.0.113.9:",
    "203.0.113.9:x",
    "[::1",
    "1.2.3.4, 5.6.7.8"
  ])
    assert.isUndefined(addressOf(text), text)
})

it("when a socket has an address with a zone, or none any more, then it stays as it is", () => {
  assert.strictEqual(peerOf("fe80::1%eth0"), "fe80::1%eth0")
  assert.strictEqual(peerOf(undefined), "")
  assert.strictEqual(peerOf("::ffff:127.0.0.1"), "127.0.0.1")
})
