import { join } from "node:path"
import { Effect } from "effect"
import { type Contender, nobody } from "../contenders.ts"
import { serve } from "../processes.ts"
import { folder, type Peer, run } from "./peer.ts"

/** The server beside it is pinned: with 1.13 and newer, which its range allows, every stream is a 500. */
const packages = ["@portkey-ai/gateway@1.15.2", "@hono/node-server@1.12.2"]

/** From npm, into a folder that goes with the run; the script that starts it. */
const install = Effect.gen(function* () {
  const home = yield* folder
  yield* run("npm", [
    "install",
    "--prefix",
    home,
    "--no-audit",
    "--no-fund",
    "--legacy-peer-deps",
    ...packages
  ])
  return join(home, "node_modules/@portkey-ai/gateway/build/start-server.js")
})

export const portkey: Peer = {
  name: "portkey",
  variable: "PEER_PORTKEY",
  installs: true,
  has: "forwards only: no keys, no limits, nothing stored",
  start: Effect.fnUntraced(function* (program, { backendUrl }) {
    const script = program ?? (yield* install)
    const served = yield* serve(
      "0",
      [script, "--headless", "--port={port}"],
      { NODE_ENV: "production" },
      { idleS: 2 }
    )
    const contender: Contender = {
      ...served,
      name: "portkey",
      keys: { good: nobody, poor: nobody, nobody },
      headers: { "x-portkey-provider": "openai", "x-portkey-custom-host": `${backendUrl}/v1` }
    }
    return contender
  })
}
