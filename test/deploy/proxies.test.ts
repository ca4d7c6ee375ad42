/** The proxies beside a gateway, as they are shipped: the sidecar for metrics (haproxy), and TLS for one machine (Caddy). */
import { spawn, spawnSync } from "node:child_process"
import { existsSync, readFileSync, writeFileSync } from "node:fs"
import { request } from "node:https"
import * as path from "node:path"
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { root } from "../support/Checkout.ts"
import { fake } from "../support/FakeBackend.ts"
import { eventually, Fake, Gateway, hello, layerGateway, newKey } from "../support/Gateway.ts"
import { freePort } from "../support/servers/processes.ts"
import { inWorld } from "../support/testWith.ts"
import { sql } from "../support/sql.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

/** Caddy of the PATH, else of Debian's package: it needs no other library, so it is not installed. */
const findCaddy = (): string => {
  const ran = spawnSync(path.join(root, "test/deploy/debian.sh"), ["caddy", "caddy"], { encoding: "utf8" })
  assert.strictEqual(ran.status, 0, `caddy cannot be had: ${ran.stderr}`)
  return path.join(ran.stdout.trim(), "caddy")
}

const haproxy = spawnSync("haproxy", ["-v"]).status === 0
if (!haproxy) process.stderr.write("proxies.test.ts: not run with haproxy, which is not installed\n")

const started = (command: string, args: ReadonlyArray<string>, env: Readonly<Record<string, string>>) =>
  Effect.acquireRelease(
    Effect.sync(() => spawn(command, args, { env: { PATH: process.env["PATH"], ...env }, stdio: "ignore" })),
    (child) => Effect.sync(() => void child.kill("SIGKILL"))
  )

const get = (url: string, init: RequestInit = {}) =>
  Effect.promise(() =>
    fetch(url, init).then(
      async (answer) => ({ status: answer.status, text: await answer.text() }),
      () => ({ status: 0, text: "" })
    )
  )

interface Answer {
  readonly status: number
  readonly body: string
  /** when each piece arrived, in milliseconds */
  readonly times: ReadonlyArray<number>
}

/** Over TLS, with a CA that only this test trusts. */
const ask = (port: number, ca: string, secret: string, headers: Readonly<Record<string, string>>) =>
  Effect.callback<Answer, Error>((resume) => {
    const sent = request(
      {
        port,
        host: "localhost",
        ca,
        path: "/api/chat",
        method: "POST",
        headers: { authorization: `Bearer ${secret}`, "content-type": "application/json", ...headers }
      },
      (answer) => {
        let body = ""
        const times: Array<number> = []
        answer.setEncoding("utf8").on("data", (text: string) => {
          body += text
          times.push(performance.now())
        })
        answer.on("end", () => resume(Effect.succeed({ status: answer.statusCode ?? 0, body, times })))
      }
    )
    sent.on("error", (error) => resume(Effect.fail(error)))
    sent.end(JSON.stringify(hello()))
    return Effect.sync(() => sent.destroy())
  })

inWorld(layerGateway({ TRUSTED_PROXIES: "127.0.0.1" }))("a proxy beside a gateway", (test, it) => {
  it.effect.skipIf(!haproxy)(
    "when a scraper asks the sidecar, then it gets the metrics, and nothing else is passed on",
    () =>
      Effect.gen(function* () {
        const gateway = yield* Gateway
        const port = yield* freePort
        const config = path.join(root, "deploy/helm/tollgate/files/metrics.cfg")
        yield* started("haproxy", ["-f", config], {
          BIND: `127.0.0.1:${port}`,
          GATEWAY: new URL(gateway.url).host
        })
        const url = `http://localhost:${port}`
        const metrics = yield* eventually(
          get(`${url}/metrics`, { headers: { "x-prometheus-scrape-timeout-seconds": "10" } }),
          ({ status }) => status === 200
        )
        assert.strictEqual(metrics.status, 200)
        assert.include(metrics.text, "tollgate_open_leases")
        for (const name of ["/", "/healthz", "/api/tags", "/metrics/", "/playground"]) {
          assert.strictEqual((yield* get(`${url}${name}`)).status, 404, name)
        }
        assert.strictEqual((yield* get(`${url}/metrics`, { method: "POST" })).status, 404)
        // What came through another proxy is the gateway's to refuse.
        const forwarded = yield* get(`${url}/metrics`, { headers: { "x-forwarded-for": "10.0.0.1" } })
        assert.strictEqual(forwarded.status, 403)
      }).pipe(Effect.scoped)
  )

  test("when clients come through Caddy, then with TLS, frame by frame, and with the address that Caddy saw", function* () {
    const gateway = yield* Gateway
    const port = yield* freePort
    const folder = yield* temporaryFolder
    // This machine's port 80 and its trusted CAs are left alone.
    const shipped = readFileSync(path.join(root, "deploy/caddy/Caddyfile"), "utf8")
    const here = "auto_https disable_redirects\n\tskip_install_trust\n\tdefault_bind 127.0.0.1"
    writeFileSync(path.join(folder, "Caddyfile"), shipped.replace("admin off", `admin off\n\t${here}`))
    yield* started(
      findCaddy(),
      ["run", "--adapter", "caddyfile", "--config", path.join(folder, "Caddyfile")],
      {
        SITE: `localhost:${port}`,
        GATEWAY: new URL(gateway.url).host,
        XDG_DATA_HOME: folder,
        XDG_CONFIG_HOME: folder,
        HOME: folder
      }
    )
    const authority = path.join(folder, "caddy/pki/authorities/local/root.crt")
    assert.isTrue(
      yield* eventually(
        Effect.sync(() => existsSync(authority)),
        (there) => there
      )
    )
    yield* Effect.sleep("500 millis")
    const backend = yield* Fake
    const { secret } = yield* newKey()
    backend.script({
      does: "stream",
      lines: [...Array.from({ length: 8 }, () => fake.chat(" word")), fake.done()],
      gapMs: 100
    })
    const answer = yield* ask(port, readFileSync(authority, "utf8"), secret, {
      "x-forwarded-for": "203.0.113.9",
      forwarded: "for=203.0.113.9",
      "x-real-ip": "203.0.113.9"
    })
    assert.strictEqual(answer.status, 200, answer.body)
    assert.include(answer.body, '"done":true')
    // Eight frames of a model that needs 100 ms for each did not come together.
    const first = answer.times[0] ?? 0
    assert.isAbove((answer.times.at(-1) ?? 0) - first, 400)
    const rows = yield* sql`SELECT client_ip AS address FROM audit_log WHERE status = 200`
    assert.deepStrictEqual(
      rows.map(({ address }) => address),
      ["127.0.0.1"]
    )
  })
})
