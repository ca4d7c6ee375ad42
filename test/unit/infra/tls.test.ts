import { assert, it } from "@effect/vitest"
import { isRedisUrl } from "../../../src/infra/tls.ts"

it.each(["redis://a", "rediss://u:p@a:1/2", "rediss://u:p,q@a:1/2?sslrootcert=/etc/tls/ca.crt"])(
  "when a URL has one server (%j), then it is taken",
  (text) => assert.isTrue(isRedisUrl(text))
)

it.each([
  "",
  "redis",
  "http://a",
  "redis://a:1,redis://b:2",
  "redis://a, rediss://b",
  "redis+sentinel://a:1/main"
])("when a URL is %j, then it is refused", (text) => assert.isFalse(isRedisUrl(text)))
