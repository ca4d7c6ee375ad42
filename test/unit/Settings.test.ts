import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { Redacted, Result } from "effect"
import { assert, describe, it } from "@effect/vitest"
import { describeProblem, readSettings, table } from "../../src/Settings.ts"

const problems = (env: Record<string, string>): ReadonlyArray<string> => {
  const read = readSettings(env)
  return Result.isFailure(read) ? read.failure.map(describeProblem) : []
}

const values = (env: Record<string, string>) => Result.getOrThrow(readSettings(env))

describe("Settings", () => {
  it("when the environment is empty, then the settings are the documented defaults", () => {
    const settings = values({})
    assert.strictEqual(settings.maxRequestBodyBytes, 262_144)
    assert.strictEqual(settings.host, "127.0.0.1")
    assert.strictEqual(settings.port, 8080)
    assert.strictEqual(settings.keyNamespace, "tg_")
    assert.strictEqual(settings.databaseUrl, undefined)
    assert.strictEqual(settings.playgroundEnabled, undefined)
  })

  it("when several settings are wrong, then all are reported at once, one line each", () => {
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

  it("when a setting is wrong, then the report does not repeat its value, which may be a secret", () => {
    const secret = "mysql://root:hunter2@db"
    const lines = problems({
      DATABASE_URL: secret,
      REDIS_URL: "hunter2",
      BACKEND_URL: "http://u:hunter2@h/path"
    })
    assert.strictEqual(lines.length, 3)
    assert.notInclude(lines.join("\n"), "hunter2")
  })

  it("when production has no database, cache store or backend, then it is refused", () => {
    assert.deepStrictEqual(
      problems({ NODE_ENV: "production" }).map((line) => line.split(":")[0]),
      ["DATABASE_URL", "REDIS_URL", "BACKEND_URL"]
    )
    assert.deepStrictEqual(
      problems({
        NODE_ENV: "production",
        DATABASE_URL: "postgres://db/x",
        REDIS_URL: "redis://a:1",
        BACKEND_URL: "http://ollama:11434"
      }),
      []
    )
  })

  it("when the discovery TTL is shorter than the refresh, then it is refused", () => {
    assert.deepStrictEqual(
      problems({ MODEL_DISCOVERY_REFRESH_S: "60", MODEL_DISCOVERY_CACHE_TTL_S: "59" }).map(
        (line) => line.split(":")[0]
      ),
      ["MODEL_DISCOVERY_CACHE_TTL_S"]
    )
  })

  it("when trusted proxies are CIDR ranges or addresses, then they are accepted, and anything else is refused", () => {
    const { trustedProxies } = values({ TRUSTED_PROXIES: "10.0.0.0/8, ::1, 192.168.1.1" })
    assert.isTrue(trustedProxies.check("10.200.3.4"))
    assert.isTrue(trustedProxies.check("::1", "ipv6"))
    assert.isFalse(trustedProxies.check("192.168.1.2"))
    for (const bad of ["10.0.0.0/33", "proxy.local", "10.0.0.0/8/8", "1.2.3.4/-1", "::1/129"]) {
      assert.strictEqual(problems({ TRUSTED_PROXIES: bad }).length, 1, bad)
    }
  })

  it("when a URL has credentials, then it is kept redacted", () => {
    const { databaseUrl } = values({ DATABASE_URL: "postgres://u:hunter2@db/x" })
    assert.notInclude(String(databaseUrl), "hunter2")
    assert.strictEqual(
      databaseUrl === undefined ? "" : Redacted.value(databaseUrl),
      "postgres://u:hunter2@db/x"
    )
  })

  it("when an address that is printed has a password, then it is refused", () => {
    for (const name of ["BACKEND_URL", "OTLP_ENDPOINT"]) {
      const [problem = ""] = problems({ [name]: "https://user:hunter2@host" })
      assert.match(problem, new RegExp(`^${name}: got text .* without user`))
      assert.notInclude(problem, "hunter2")
      assert.deepStrictEqual(problems({ [name]: "https://host" }), [])
    }
  })

  it("when a setting is a secret, then a file may hold it, and no other setting reads one", () => {
    assert.deepStrictEqual(
      Object.values(table)
        .filter(({ secret }) => secret)
        .map(({ name }) => name),
      ["DATABASE_URL", "REDIS_URL", "ALERT_WEBHOOK_URL", "ALERT_WEBHOOK_SECRET"]
    )
  })

  it("when a secret stands in a file, then the setting is the file's content without its last line break", () => {
    const folder = mkdtempSync(path.join(tmpdir(), "tollgate-settings-"))
    const file = path.join(folder, "database")
    writeFileSync(file, "postgres://user:hunter2@db/x\n")
    const { databaseUrl } = values({ DATABASE_URL_FILE: file })
    assert.strictEqual(
      databaseUrl === undefined ? undefined : Redacted.value(databaseUrl),
      "postgres://user:hunter2@db/x"
    )
    writeFileSync(file, "mysql://hunter2")
    const wrong = problems({ DATABASE_URL_FILE: file })
    assert.deepStrictEqual(wrong, ["DATABASE_URL: got text of 15 characters, expected a postgres:// URL"])
    rmSync(folder, { recursive: true })
  })

  it("when a secret's file cannot be used, then it is named and nothing of it is shown", () => {
    const folder = mkdtempSync(path.join(tmpdir(), "tollgate-settings-"))
    const [empty, long] = [path.join(folder, "empty"), path.join(folder, "long")]
    writeFileSync(empty, "\n")
    writeFileSync(long, "hunter2".repeat(10_000))
    for (const file of [path.join(folder, "absent"), folder, empty, long, "/dev/zero", "a\0b"]) {
      assert.deepStrictEqual(problems({ REDIS_URL_FILE: file }), [
        "REDIS_URL_FILE: got a file that is missing, unreadable, empty or longer than 64 KiB, expected a file with the value of REDIS_URL"
      ])
    }
    assert.deepStrictEqual(problems({ REDIS_URL: "redis://a", REDIS_URL_FILE: empty }), [
      "REDIS_URL_FILE: got REDIS_URL as well, expected one of the two"
    ])
    rmSync(folder, { recursive: true })
  })

  it("when a variable is almost a setting, then it is refused, also beside the one that is meant", () => {
    for (const [name, meant] of [
      ["BACKND_URL", "BACKEND_URL"],
      ["REDIS_URI", "REDIS_URL"],
      ["DATABSE_URL", "DATABASE_URL"],
      ["DATABASE_URL_FIEL", "DATABASE_URL_FILE"],
      ["DATADIR", "DATA_DIR"],
      ["PROT", "PORT"],
      ["HOSTS", "HOST"],
      ["MAX_REQUEST_BODY_BYTE", "MAX_REQUEST_BODY_BYTES"],
      ["NUM_PREDICT_CAPS", "NUM_PREDICT_CAP"],
      ["TRUSTED_PROXY", "TRUSTED_PROXIES"],
      ["AUDIT_RETENTION", "AUDIT_RETENTION_DAYS"],
      ["SHUTDOWN_DRAIN", "SHUTDOWN_DRAIN_MS"],
      ["QUEUE_MAX_WAIT_S", "QUEUE_MAX_WAIT_MS"],
      ["MAX_REQUEST_BODIES", "MAX_REQUEST_BODY_BYTES"]
    ] as const) {
      const line = `${name}: got no setting of this name, expected perhaps ${meant}`
      assert.deepStrictEqual(problems({ [name]: "1" }), [line])
      const right = {
        BACKEND_URL: "http://a",
        REDIS_URL: "redis://a",
        DATABASE_URL: "postgres://a/b",
        PORT: "80"
      }
      assert.deepStrictEqual(problems({ ...right, [name]: "1" }), [line])
      assert.deepStrictEqual(problems({ [name]: "" }), [], "empty is absent")
    }
    for (const name of ["PORT", "BACKEND_URL"]) {
      assert.deepStrictEqual(problems({ [`${name}_FILE`]: "/run/x" }), [
        `${name}_FILE: got a file for a setting that is no secret, expected the value itself in ${name}`
      ])
    }
  })

  it("when Docker or Kubernetes set variables, whatever the services are called, then the process starts", () => {
    const services = Object.values(table).flatMap(({ name }) => {
      const words = name.split("_")
      return words.map((_, count) => words.slice(0, count + 1).join("_"))
    })
    for (const service of [...services, "A", "KUBERNETES", "OLLAMA"]) {
      const address = "tcp://10.0.0.1:80"
      const env = {
        HOME: "/root",
        HOSTNAME: "pod-1",
        PATH: "/bin",
        TERM: "xterm",
        PWD: "/",
        [`${service}_SERVICE_HOST`]: "10.0.0.1",
        [`${service}_SERVICE_PORT`]: "80",
        [`${service}_SERVICE_PORT_HTTP`]: "80",
        [`${service}_PORT`]: address,
        [`${service}_PORT_80_TCP`]: address,
        [`${service}_PORT_80_TCP_PROTO`]: "tcp",
        [`${service}_PORT_80_TCP_PORT`]: "80",
        [`${service}_PORT_80_TCP_ADDR`]: "10.0.0.1",
        [`${service}_NAME`]: "/gateway/other"
      }
      assert.deepStrictEqual(problems(env), [], service)
    }
    assert.deepStrictEqual(problems({ OLLAMA_HOST: "x", DATABASE_HOST: "x", NODE_OPTIONS: "--x" }), [])
  })
})
