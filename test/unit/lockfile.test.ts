/** What `npm ci` installs is what was reviewed: every package by its hash, and from no host of anybody's choosing. */
import { assert, it } from "@effect/vitest"
import { Schema } from "effect"
import { findStrict, oldestNode } from "../../deploy/tools/lock.ts"
import { textOf } from "../support/sources.ts"

const Entry = Schema.Struct({
  version: Schema.optionalKey(Schema.String),
  resolved: Schema.optionalKey(Schema.String),
  integrity: Schema.optionalKey(Schema.String),
  link: Schema.optionalKey(Schema.Boolean),
  optional: Schema.optionalKey(Schema.Boolean),
  os: Schema.optionalKey(Schema.Unknown)
})
const Lock = Schema.fromJsonString(Schema.Struct({ packages: Schema.Record(Schema.String, Entry) }))
const { packages } = Schema.decodeSync(Lock)(textOf("package-lock.json"))
const entries = Object.entries(packages).filter(([name]) => name !== "")

/**
 * Packages of a tool for platforms that it was never published for, so there is nothing to take a hash of. `npm ci` refuses
 * a lock file without the entries, and installs none of them.
 */
const unpublished = /^node_modules\/@effect\/tsgo-[a-z0-9-]+$/
/** Where the suites run. */
const supported = /-linux-x64(?:-gnu)?$/

it("when a package is installed, then its hash is in the lock file", () => {
  assert.isAbove(entries.length, 100)
  const without = entries.filter(([, { integrity }]) => integrity === undefined)
  assert.isAtMost(without.length, 6)
  for (const [name, { optional, os }] of without) {
    assert.match(name, unpublished)
    assert.notMatch(name, supported)
    assert.isTrue(
      optional === true && os !== undefined,
      `${name} is for one platform, and left out elsewhere`
    )
  }
  for (const [name, { integrity }] of entries)
    if (integrity !== undefined) assert.match(integrity, /^sha512-[A-Za-z0-9+/]{86}==$/, name)
})

it("when a package is fetched, then from the registry that npm is set to: no entry names a host", () => {
  assert.deepStrictEqual(
    entries.filter(([, { link, resolved }]) => resolved !== undefined || link === true).map(([name]) => name),
    []
  )
})

it("when npm runs on the oldest Node that package.json admits, then no package of the lock file warns", () => {
  const Package = Schema.fromJsonString(Schema.Struct({ engines: Schema.Struct({ node: Schema.String }) }))
  const { engines } = Schema.decodeSync(Package)(textOf("package.json"))
  assert.strictEqual(engines.node, `>=${oldestNode}`)
  assert.deepStrictEqual(findStrict(textOf("package-lock.json")), [], "npm run lock")
})
