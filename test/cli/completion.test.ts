/** `deploy/completion.bash` completes the names of tenants and the prefixes of keys from what the commands print. */
import { execFileSync } from "node:child_process"
import { mkdtempSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import { prefixOf } from "../../src/domain/Key.ts"
import { Admin, tollgateHere } from "./inProcess.ts"
import { succeeds } from "./tollgate.ts"
import { testWith } from "../support/testWith.ts"

const script = path.resolve(import.meta.dirname, "../../deploy/completion.bash")

const test = testWith(it.effect, Admin)

test("when Tab is pressed after --tenant or --key, then the names that fit are offered", function* () {
  const folder = mkdtempSync(path.join(tmpdir(), "tollgate-completion-"))
  for (const name of ["acme", "acme two", "other"])
    succeeds(yield* tollgateHere("create-tenant", "--name", name))
  const key = (yield* tollgateHere("create-key", "--tenant", "acme", "--name", "x")).stdout
  // What the commands print, for a shell that has no database.
  for (const [name, args] of [
    ["list-tenants", ["list-tenants"]],
    ["list-keys", ["list-keys"]],
    ["--completions", ["--completions", "bash"]]
  ] as const)
    writeFileSync(path.join(folder, name), (yield* tollgateHere(...args)).stdout)
  const complete = (...words: ReadonlyArray<string>) =>
    execFileSync(
      "bash",
      [
        "-c",
        'tollgate() { cat "$FOLDER/$1"; }; source "$SCRIPT"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}; _tollgate_with_names tollgate "${@: -1}" "${@: -2:1}"; printf "%s\\n" "${COMPREPLY[@]}"',
        "bash",
        ...words
      ],
      { env: { PATH: process.env["PATH"], FOLDER: folder, SCRIPT: script }, encoding: "utf8" }
    ).trimEnd()
  assert.strictEqual(complete("tollgate", "list-keys", "--tenant", "ac"), "acme\nacme\\ two")
  assert.strictEqual(complete("tollgate", "show-budget", "--key", ""), prefixOf(key))
  assert.strictEqual(complete("tollgate", "revoke-key", "--prefix", "zz"), "")
  assert.strictEqual(complete("tollgate", "show-k"), "show-key")
})
