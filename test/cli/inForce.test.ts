/** A command that changes what gateways do returns when they do it, or says which of them has not answered. */
import { mkdtempSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { commands } from "../../cli/program.ts"
import { layerPostgres as layerReplicas, Replicas } from "../../src/replicas/Replicas.ts"
import { Admin, tollgateBeside } from "./inProcess.ts"
import { succeeds } from "./tollgate.ts"
import { testWith } from "../support/testWith.ts"

const test = testWith(it.live, Admin)

// How long a command waits for a gateway that does not answer.
process.env["KEY_FRESHNESS_MS"] = "50"

const file = path.join(mkdtempSync(path.join(tmpdir(), "tollgate-in-force-")), "file.yaml")
writeFileSync(file, "{ version: 1, tenants: [{ name: other, rpm: 9 }] }")

const key = ["--key", "laptop"]
const tenant = ["--tenant", "acme"]

/** What gateways have read before is not true after these. */
const changing: Readonly<Record<string, ReadonlyArray<string>>> = {
  "set-limits": [...key, "--rpm", "7"],
  "set-budget": [...key, "--daily", "7"],
  "add-budget": [...key, "--tokens", "7", "--until", "3d"],
  "set-models": [...tenant, "--allow-all"],
  "set-end-user": [...key, "--header", "X-User"],
  "set-prompt-log": [...key, "--on"],
  "block-user": [...key, "--user", "ada", "--yes"],
  "unblock-user": [...key, "--user", "ada", "--yes"],
  "rotate-key": ["--key", "old", "--grace", "1h"],
  "move-key": ["--key", "moves", "--tenant", "other"],
  "disable-key": key,
  "enable-key": key,
  "disable-tenant": tenant,
  "enable-tenant": tenant,
  "rename-tenant": [...tenant, "--name", "acme labs"],
  "revoke-key": key,
  apply: ["-f", file]
}

/** New keys are read when they come, a tenant that is deleted has no key, and the rules of an erased user go on. */
const others =
  `create-tenant delete-tenant create-key create-keys list-tenants list-models show-usage list-keys show-key
  show-budget show-prompt-log erase-prompt-log export report requests show-request reconcile status doctor connect serve
  migrate test-alert export-user erase-user`.split(/\s+/)

it("when there is a command, then it is known whether it changes what gateways do", () => {
  assert.deepStrictEqual(commands.toSorted(), [...Object.keys(changing), ...others].toSorted())
})

test("when a gateway does not answer, then each command that changes something says so, and has changed it", function* () {
  for (const name of ["acme", "other"]) succeeds(yield* tollgateBeside("create-tenant", "--name", name))
  for (const name of ["laptop", "old", "moves"])
    succeeds(yield* tollgateBeside("create-key", "--tenant", "acme", "--name", name))
  const { report } = yield* Effect.provide(Replicas, layerReplicas)
  yield* report({ id: "01a1fe92-0000-4000-8000-00000000000a", host: "frozen", version: "1.0.0", gauges: {} })
  for (const [name, args] of Object.entries(changing)) {
    const ran = yield* tollgateBeside(name, ...args)
    succeeds(ran)
    assert.match(ran.stderr, /In force on 0 of 1 replica\. Not answered: frozen\/01a1fe92, which reads/, name)
  }
  const listed = yield* tollgateBeside("list-keys", "--tenant", "acme labs")
  assert.match(listed.stdout, /revoked +acme labs +laptop/)
})
