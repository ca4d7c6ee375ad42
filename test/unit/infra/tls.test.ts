import { assert, it } from "@effect/vitest"
import { readRedisUrl } from "../../../src/infra/tls.ts"

it("when a URL has one server, then it is one; when it is a comma list, then it is the nodes of a cluster", () => {
  assert.deepStrictEqual(readRedisUrl("rediss://u:p@a:1/2"), ["rediss://u:p@a:1/2"])
  assert.deepStrictEqual(readRedisUrl("redis://a:1, redis://b:2"), ["redis://a:1", "redis://b:2"])
})

it.each(["", "redis", "http://a", "redis://a,http://b", "redis://a,", "redis+sentinel://a:1/main"])(
  "when a URL is %j, then it is refused",
  (text) => assert.isUndefined(readRedisUrl(text))
)
