/** Tests wait for conditions (`test/support/wait.ts`). This is the list of the waits for real time, each with its reason. */
import { readdirSync, readFileSync } from "node:fs"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"

const root = path.resolve(import.meta.dirname, "../..")

/** The servers of the real suite. */
const programs = /^real\//

const waiting = /\bEffect\.(?:sleep|delay)\(|\bsetTimeout\(|(?<![.\w])sleep\(/g

const testClock = "on the test clock, which a test moves by hand"
const nothing = "nothing may happen for a while, and nothing tells when that while is over"
const lasts = "the test is about what lasts: a lease, a pause, an outage"
const client = "a client that is slow, or leaves after a while"
const pace = "the pace of many requests"
const wire = "bytes on loopback need a moment, and no one reports that they are there"

/** Uses of each file. A new one needs a reason; a wait for something that can be asked for needs `eventually`. */
const waits: Readonly<Record<string, readonly [uses: number, why: string]>> = {
  "browser/truth.test.ts": [1, "an answer whose headers come before its first word"],
  "cli/follow.test.ts": [1, lasts],
  "contract/AuditPrepared.ts": [1, "a refusal comes before, while or after the row of the intent is written"],
  "contract/CircuitBreaker.ts": [1, testClock],
  "contract/Discovery.live.test.ts": [1, testClock],
  "contract/KeyStore.live.test.ts": [2, pace],
  "contract/QueueStore.live.test.ts": [1, "a message that Redis has published needs a moment"],
  "deploy/proxies.test.ts": [1, pace],
  "deploy/readme.test.ts": [1, "a person types the next command a second later"],
  "deploy/signals.test.ts": [2, "two signals within a second count as one"],
  "deploy/tls.test.ts": [1, "Postgres reads a new certificate a moment after it is told to"],
  "edge/answers.test.ts": [3, client],
  "edge/attacks/floods.test.ts": [1, "the allowance for refusals fills up again with time"],
  "edge/attacks/framing.test.ts": [1, client],
  "edge/attacks/freeWork.test.ts": [
    2,
    "the client waits as Retry-After says; connections that are reset soon"
  ],
  "edge/attacks/malformed.test.ts": [2, client],
  "edge/collector.test.ts": [2, pace],
  "edge/limits/drift.test.ts": [4, nothing],
  "edge/limits/hold.test.ts": [1, "the charge of an answer that was left is by its time"],
  "edge/main-job.test.ts": [1, wire],
  "edge/operations.test.ts": [1, pace],
  "edge/promptLog.test.ts": [1, nothing],
  "edge/surface/native-streaming.test.ts": [1, "a backend that writes nothing for 300 ms is held back"],
  "faults/audit.test.ts": [2, `${pace}; ${nothing}`],
  "faults/debts.test.ts": [1, pace],
  "faults/limits.test.ts": [1, "a slot must be taken again within half a second"],
  "faults/pausedProcess.test.ts": [4, lasts],
  "faults/reconciler.test.ts": [3, `${lasts}; ${nothing}`],
  "faults/redis-wire.test.ts": [1, lasts],
  "faults/secrets.test.ts": [3, "logs and rows that are written seconds later are searched too"],
  "faults/sentinel.test.ts": [1, lasts],
  "faults/traffic.test.ts": [3, lasts],
  "fuzz/sockets.test.ts": [1, client],
  "support/Behaviour.ts": [3, "a backend that is slow"],
  "support/FakeBackend.ts": [1, "the wait for a condition of the fake backend"],
  "support/FaultWay.ts": [1, "a network that is slow"],
  "support/RawClient.ts": [2, "a client's patience"],
  "support/Traffic.ts": [1, pace],
  "support/books.ts": [1, "the wait for settled books"],
  "support/ollama/cache.ts": [1, "another process builds the same server"],
  "support/wait.ts": [1, "the wait for a condition"],
  "support/watch.ts": [1, "the wait for the invariants"],
  "unit/backend/ollama/answerMemory.test.ts": [1, nothing],
  "unit/backend/ollama/client.test.ts": [4, `${nothing}; ${wire}`],
  "unit/gates/keys/KeyStateCache.test.ts": [1, testClock],
  "unit/http/server/AnswerBody.test.ts": [1, nothing],
  "unit/http/server/ReceivedBody.test.ts": [4, wire],
  "unit/http/server/connections.test.ts": [2, `${nothing}; ${wire}`],
  "unit/http/server/newConnections.test.ts": [1, nothing],
  "unit/http/server/pipelining.test.ts": [1, wire],
  "unit/infra/Deadlines.test.ts": [1, "deadlines of Node's own timers are what is tested"],
  "unit/infra/auditMonths.test.ts": [3, "another session needs a moment before it waits for the lock"],
  "unit/infra/ioredis.test.ts": [3, nothing],
  "unit/infra/time.test.ts": [1, "the timer itself is tested"],
  "unit/infra/timeoutDetached.test.ts": [1, testClock],
  "unit/request/SettlementQueue.test.ts": [1, testClock],
  "unit/support/FaultProxy.test.ts": [4, "the proxy's delays are tested"]
}

it("when a test waits for time, then its file is in the list with the number of its waits and the reason", () => {
  assert.lengthOf([..."yield* Effect.sleep(5); setTimeout(f); await sleep(2)".matchAll(waiting)], 3)
  const found = readdirSync(root, { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".ts") && !programs.test(name) && name !== "unit/support/waits.test.ts")
    .flatMap((name) => {
      const uses = [...readFileSync(path.join(root, name), "utf8").matchAll(waiting)].length
      return uses === 0 ? [] : [[name, uses] as const]
    })
  assert.deepStrictEqual(
    Object.fromEntries(found),
    Object.fromEntries(Object.entries(waits).map(([name, [uses]]) => [name, uses]))
  )
})
