import { Redacted, Result } from "effect"
import { assert, describe, it } from "@effect/vitest"
import { describeProblem, readSettings } from "../../src/Settings.ts"

const problems = (env: Record<string, string>): ReadonlyArray<string> => {
  const read = readSettings(env)
  return Result.isFailure(read) ? read.failure.map(describeProblem) : []
}

const values = (env: Record<string, string>) => Result.getOrThrow(readSettings(env))

describe("Settings", () => {
  it("takes the documented defaults from an empty environment", () => {
    const settings = values({})
    assert.strictEqual(settings.maxRequestBodyBytes, 262_144)
    assert.strictEqual(settings.host, "127.0.0.1")
    assert.strictEqual(settings.port, 8080)
    assert.strictEqual(settings.keyNamespace, "tg_")
    assert.strictEqual(settings.databaseUrl, undefined)
    assert.strictEqual(settings.playgroundEnabled, undefined)
  })

  it("reports every problem at once, one line each", () => {
    const lines = problems({
      MAX_REQUEST_BODY_BYTES: "abc",
      PORT: "-1",
      KEY_NAMESPACE: "toolong_",
      LOG_LEVEL: "loud"
    })
    assert.deepStrictEqual(
      lines.map((line) => line.split(":")[0]),
      ["PORT", "KEY_NAMESPACE", "MAX_REQUEST_BODY_BYTES", "LOG_LEVEL"]
    )
  })

  it("never repeats a value, which may be a secret", () => {
    const secret = "mysql://root:hunter2@db"
    const lines = problems({
      DATABASE_URL: secret,
      REDIS_URL: "hunter2",
      BACKEND_URL: "http://u:hunter2@h/path"
    })
    assert.strictEqual(lines.length, 3)
    assert.notInclude(lines.join("\n"), "hunter2")
  })

  it("refuses production without database, cache store and backend", () => {
    assert.deepStrictEqual(
      problems({ NODE_ENV: "production" }).map((line) => line.split(":")[0]),
      ["DATABASE_URL", "REDIS_URL", "BACKEND_URL"]
    )
    assert.deepStrictEqual(
      problems({
        NODE_ENV: "production",
        DATABASE_URL: "postgres://db/x",
        REDIS_URL: "redis://a:1,redis://b:2",
        BACKEND_URL: "http://ollama:11434"
      }),
      []
    )
  })

  it("refuses a discovery TTL shorter than the refresh", () => {
    assert.deepStrictEqual(
      problems({ MODEL_DISCOVERY_REFRESH_S: "60", MODEL_DISCOVERY_CACHE_TTL_S: "59" }).map(
        (line) => line.split(":")[0]
      ),
      ["MODEL_DISCOVERY_CACHE_TTL_S"]
    )
  })

  it("accepts CIDR ranges and addresses as trusted proxies, and nothing else", () => {
    const { trustedProxies } = values({ TRUSTED_PROXIES: "10.0.0.0/8, ::1, 192.168.1.1" })
    assert.isTrue(trustedProxies.check("10.200.3.4"))
    assert.isTrue(trustedProxies.check("::1", "ipv6"))
    assert.isFalse(trustedProxies.check("192.168.1.2"))
    for (const bad of ["10.0.0.0/33", "proxy.local", "10.0.0.0/8/8", "1.2.3.4/-1", "::1/129"]) {
      assert.strictEqual(problems({ TRUSTED_PROXIES: bad }).length, 1, bad)
    }
  })

  it("keeps URLs with credentials redacted", () => {
    const { databaseUrl } = values({ DATABASE_URL: "postgres://u:hunter2@db/x" })
    assert.notInclude(String(databaseUrl), "hunter2")
    assert.strictEqual(
      databaseUrl === undefined ? "" : Redacted.value(databaseUrl),
      "postgres://u:hunter2@db/x"
    )
  })
})
