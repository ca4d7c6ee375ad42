import { IncomingMessage } from "node:http"
import { Socket } from "node:net"
import { assert, it } from "@effect/vitest"
import { isLocal } from "../../../src/http/ops.ts"

const from = (remoteAddress: string | undefined): boolean => {
  const socket = new Socket()
  Object.defineProperty(socket, "remoteAddress", { value: remoteAddress })
  return isLocal(new IncomingMessage(socket))
}

it("U24 only the socket's own end counts as this machine, in either family", () => {
  for (const here of ["127.0.0.1", "127.0.0.2", "127.255.255.254", "::1", "::ffff:127.0.0.1"])
    assert.isTrue(from(here), here)
  for (const there of [
    "10.0.0.1",
    "128.0.0.1",
    "::ffff:10.0.0.1",
    "::2",
    "fe80::1",
    "",
    "localhost",
    undefined
  ])
    assert.isFalse(from(there), String(there))
})
