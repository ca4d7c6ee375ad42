import { assert, it } from "@effect/vitest"
import { readRedisUrl } from "../../../src/infra/RedisUrl.ts"

it("when a URL has one server, then it is one; when it has a comma list, then it is a cluster", () => {
  assert.deepStrictEqual(readRedisUrl("rediss://u:p@a:1/2"), { kind: "single", url: "rediss://u:p@a:1/2" })
  assert.deepStrictEqual(readRedisUrl("redis://a:1, redis://b:2"), {
    kind: "cluster",
    urls: ["redis://a:1", "redis://b:2"]
  })
})

it("when a URL names sentinels, then it has hosts, master, and the users for both", () => {
  const plain = {
    kind: "sentinel",
    master: "mymaster",
    database: 0,
    username: undefined,
    password: undefined,
    sentinelPassword: undefined,
    tls: false
  } as const
  assert.deepStrictEqual(readRedisUrl("redis+sentinel://a:1,b/mymaster"), {
    ...plain,
    sentinels: [
      { host: "a", port: 1 },
      { host: "b", port: 26_379 }
    ]
  })
  assert.deepStrictEqual(
    readRedisUrl("rediss+sentinel://us%40r:p%2Fw@[::1]:7/mymaster/3?sentinelPassword=s%26t"),
    {
      ...plain,
      sentinels: [{ host: "::1", port: 7 }],
      database: 3,
      username: "us@r",
      password: "p/w",
      sentinelPassword: "s&t",
      tls: true
    }
  )
  assert.deepInclude(readRedisUrl("redis+sentinel://:secret@a/m"), {
    username: undefined,
    password: "secret"
  })
})

it("when a URL is anything else, then it is refused", () => {
  for (const text of [
    "",
    "redis",
    "http://a",
    "redis://a,http://b",
    "redis://a,",
    "redis+sentinel://",
    "redis+sentinel://a:1",
    "redis+sentinel://a:1/",
    "redis+sentinel://a:1,/m",
    "redis+sentinel://a:x/m",
    "redis+sentinel://a:1/m/n",
    "redis+sentinel://a:1/m?other=1",
    "redis+sentinel://a:1,redis://b:2/m"
  ])
    assert.isUndefined(readRedisUrl(text), text)
})
