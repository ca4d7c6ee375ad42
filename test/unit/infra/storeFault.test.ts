/** What is wrong with a store is named by the errors that its clients make, however deep they are. */
import { assert, it } from "@effect/vitest"
import { Cause } from "effect"
import { SqlError, UnknownError } from "effect/sql/SqlError"
import { Unavailable } from "../../../src/domain/Errors.ts"
import { MeterDown } from "../../../src/gates/meter/Meter.ts"
import { faultOf } from "../../../src/gates/meter/redis/requirements.ts"
import { ReadOnly } from "../../../src/infra/Postgres.ts"
import { storeFault } from "../../../src/infra/storeFault.ts"

const ofPostgres = (code: string, message: string) =>
  new Unavailable({
    gate: "KeyStore",
    cause: new SqlError({ reason: new UnknownError({ cause: Object.assign(new Error(message), { code }) }) })
  })
const suitable = { runId: "", version: "7.2.1", evictionPolicy: "noeviction", isClustered: false }
const ofRedis = (message: string) => new MeterDown({ cause: new Error(message) })

const cases: ReadonlyArray<readonly [fault: string, error: unknown]> = [
  ["disk full", ofPostgres("53100", 'could not extend file "base/5/16389": No space left on device')],
  [
    "disk full",
    ofRedis("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist")
  ],
  ["read-only", ofPostgres("25006", "cannot execute INSERT in a read-only transaction")],
  ["read-only", new Unavailable({ gate: "KeyStore", cause: new ReadOnly() })],
  ["read-only", ofRedis("READONLY You can't write against a read only replica.")],
  ["read-only", ofRedis("MASTERDOWN Link with MASTER is down")],
  ["password refused", ofPostgres("28P01", 'password authentication failed for user "a"')],
  ["password refused", ofPostgres("28000", 'role "a" is not permitted to log in')],
  ["password refused", new Error("The server requested password authentication")],
  ["password refused", ofRedis("WRONGPASS invalid username-password pair or user is disabled.")],
  ["password refused", ofRedis("NOAUTH Authentication required.")],
  ["too many connections", ofPostgres("53300", "sorry, too many clients already")],
  ["too many connections", ofRedis("ERR max number of clients reached")],
  ["memory full", ofRedis("OOM command not allowed when used memory > 'maxmemory'.")],
  ["starting", ofPostgres("57P03", "the database system is starting up")],
  ["starting", ofRedis("LOADING Redis is loading the dataset in memory")],
  ["unsuitable", new MeterDown({ cause: faultOf({ ...suitable, version: "6.2.1" }) })],
  ["unsuitable", new MeterDown({ cause: faultOf({ ...suitable, evictionPolicy: "allkeys-lru" }) })],
  ["unsuitable", new MeterDown({ cause: faultOf({ ...suitable, isClustered: true }) })],
  ["certificate refused", Object.assign(new Error("certificate has expired"), { code: "CERT_HAS_EXPIRED" })],
  ["certificate refused", Object.assign(new Error("self-signed"), { code: "DEPTH_ZERO_SELF_SIGNED_CERT" })],
  [
    "certificate refused",
    Object.assign(new Error("not in the list"), {
      code: "ERR_TLS_CERT_ALTNAME_INVALID",
      reason: "IP: 127.0.0.2"
    })
  ],
  ["failed", ofPostgres("3D000", 'database "a" does not exist')],
  ["failed", ofPostgres("XX001", "invalid page in block 7")],
  ["failed", ofRedis("NOPERM this user has no permissions to run the 'set' command")],
  ["no answer", Object.assign(new Error("connect ECONNREFUSED 127.0.0.1:1"), { code: "ECONNREFUSED" })],
  ["no answer", Object.assign(new Error("read ECONNRESET"), { code: "ECONNRESET" })],
  ["no answer", new Cause.TimeoutError("no answer within 1000 ms")],
  ["no answer", new MeterDown({ cause: "no answer in 400 ms" })],
  ["no answer", undefined]
]

for (const [fault, error] of cases)
  it(`when an error says ${JSON.stringify(String(error)).slice(0, 40)}, then the fault is ${fault}, with what to do`, () => {
    const named = storeFault(error)
    assert.strictEqual(named.fault, fault)
    assert.isNotEmpty(named.mend)
  })
