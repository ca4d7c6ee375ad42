import { IncomingMessage } from "node:http"
import { Socket } from "node:net"
import { assert, it } from "@effect/vitest"
import { mayReadMetrics } from "../../../src/http/metricsAccess.ts"

const asks = (
  remoteAddress: string | undefined,
  headers: Readonly<Record<string, string>> = { host: "127.0.0.1:8080" }
): boolean => {
  const socket = new Socket()
  Object.defineProperty(socket, "remoteAddress", { value: remoteAddress })
  const incoming = new IncomingMessage(socket)
  Object.assign(incoming.headers, headers)
  return mayReadMetrics(incoming)
}

it("when the socket's peer is loopback, of either family, then metrics are shown (U24)", () => {
  for (const here of ["127.0.0.1", "127.0.0.2", "127.255.255.254", "::1", "::ffff:127.0.0.1"])
    assert.isTrue(asks(here), here)
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
    assert.isFalse(asks(there), String(there))
})

it("when Host does not name loopback, then metrics are refused: a rebound name is not this machine (U24)", () => {
  for (const host of [
    "localhost",
    "LOCALHOST:8080",
    "127.0.0.1",
    "127.0.0.1:65535",
    "127.9.9.9:1",
    "[::1]",
    "[::1]:8080",
    "[::ffff:127.0.0.1]:80"
  ])
    assert.isTrue(asks("127.0.0.1", { host }), host)
  for (const host of [
    "",
    "gateway",
    "rebound.example",
    "127.0.0.1.example",
    "localhost.example:8080",
    "example.localhost@127.0.0.1",
    "127.1",
    "2130706433",
    "0x7f.0.0.1",
    "0.0.0.0",
    "[::2]",
    "[127.0.0.1]",
    "::1",
    "10.0.0.1:8080",
    "localhost:",
    "localhost:x"
  ])
    assert.isFalse(asks("127.0.0.1", { host }), host)
  assert.isFalse(asks("127.0.0.1", {}), "no Host at all")
})

it("when a request has a header that no scraper sends, then it came through a proxy and is refused (U24)", () => {
  const own = { host: "localhost:8080", "user-agent": "Prometheus/3.0", accept: "text/plain" }
  assert.isTrue(
    asks("::1", {
      ...own,
      "accept-encoding": "gzip",
      "x-prometheus-scrape-timeout-seconds": "10",
      connection: "keep-alive",
      "sec-fetch-mode": "cors"
    })
  )
  for (const name of [
    "forwarded",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded",
    "x-forwarded-proto",
    "x-original-forwarded-for",
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-envoy-external-address",
    "x-azure-socketip",
    "x-appengine-user-ip",
    "x-amzn-trace-id",
    "cf-connecting-ip",
    "cf-connecting-ipv6",
    "cf-ray",
    "cdn-loop",
    "true-client-ip",
    "fastly-client-ip",
    "fly-client-ip",
    "client-ip",
    "max-forwards",
    "proxy-connection",
    "x-a-proxy-of-tomorrow"
  ])
    assert.isFalse(asks("::1", { ...own, [name]: "" }), name)
})
