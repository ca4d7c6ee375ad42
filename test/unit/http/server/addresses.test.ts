import { assert, it } from "@effect/vitest"
import { addressGroup } from "../../../../src/http/server/addresses.ts"

it("when an address is IPv4, then it is a group of its own, and an IPv6 address is in the group of its /64", () => {
  for (const address of ["192.0.2.1", "127.0.0.1", ""]) assert.strictEqual(addressGroup(address), address)
  for (const [address, group] of [
    ["2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"],
    ["2001:db8:1:2::", "2001:db8:1:2::/64"],
    ["2001:db8::1", "2001:db8:0:0::/64"],
    ["2001:db8::1:2:3:4:5", "2001:db8:0:1::/64"],
    ["::1", "0:0:0:0::/64"],
    ["::", "0:0:0:0::/64"],
    ["1::", "1:0:0:0::/64"],
    ["64:ff9b::192.0.2.1", "64:ff9b:0:0::/64"],
    ["fe80::1%eth0", "fe80:0:0:0::/64"]
  ] as const)
    assert.strictEqual(addressGroup(address), group, address)
})
