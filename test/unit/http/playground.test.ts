import { createHash } from "node:crypto"
import { gunzipSync } from "node:zlib"
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { welcome } from "../../../src/startup/banner.ts"
import { makePage } from "../../../src/http/playground.ts"

const { html, gzip, headers } = makePage({
  maxRequestBodyBytes: 262_144,
  numPredictCap: 65_536,
  extraSurfaces: new Set()
})
const policy = headers["content-security-policy"] ?? ""

const inside = (tag: string): ReadonlyArray<string> =>
  [...html.matchAll(new RegExp(`<${tag}>([\\s\\S]*?)</${tag}>`, "g"))].map((match) => match[1] ?? "")

it("when the page has a script and a style, then they are the ones the policy names by hash", () => {
  for (const tag of ["script", "style"]) {
    const [text = "", ...more] = inside(tag)
    assert.lengthOf(more, 0)
    assert.isAbove(text.length, 1000)
    const hash = createHash("sha256").update(text).digest("base64")
    assert.match(
      policy,
      new RegExp(`${tag}-src 'sha256-${hash.replaceAll(/[+/]/g, String.raw`\$&`)}'(?:;|$)`)
    )
  }
})

it("when the policy is read, then it allows nothing else, and the page needs nothing else", () => {
  assert.notMatch(policy, /unsafe|nonce|\*|https?:/)
  for (const part of [
    "default-src 'none'",
    "connect-src 'self'",
    "frame-ancestors 'none'",
    "base-uri 'none'",
    "form-action 'none'",
    "require-trusted-types-for 'script'"
  ])
    assert.include(policy, part)
  const markup = html.replace(/<script>[\s\S]*<\/script>/, "")
  assert.notMatch(
    markup,
    /\son[a-z]+=|\sstyle=|javascript:|<form|<iframe|https?:\/\/(?!www\.w3\.org\/2000\/svg)/i
  )
  assert.deepInclude(headers, {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer"
  })
})

it.effect(
  "when the gateway runs, then the banner names what is on, and how to switch the paths of agents on",
  () =>
    Effect.sync(() => {
      const facts = {
        baseUrl: "http://h:1",
        extraSurfaces: new Set<string>(),
        key: undefined,
        model: "m",
        dataDir: "d",
        backend: "b"
      }
      assert.include(welcome({ ...facts, playground: false }), "EXTRA_SURFACES=responses,messages npm start")
      const agents = welcome({ ...facts, playground: false, extraSurfaces: new Set(["messages"]) })
      assert.include(agents, "/v1/messages")
      assert.notInclude(agents, "EXTRA_SURFACES")
      assert.include(welcome({ ...facts, playground: true }), "http://h:1/playground")
      assert.notInclude(welcome({ ...facts, playground: false }), "playground")
    })
)

it("when the page is sent, then all of it is at most 50 KB, compressed as every browser takes it", () => {
  assert.strictEqual(gunzipSync(gzip).toString("utf8"), html)
  assert.isAtMost(gzip.length, 50_000)
})
