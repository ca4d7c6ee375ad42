/**
 * The CPU of one request is bounded, whatever its texts are. Every header that is read and every text of every body is filled
 * with long nasty texts. Headers come from the table of `http/server/headers.ts`, fields from the schemas of the routes,
 * so a new one is here by itself.
 */
import { BlockList } from "node:net"
import { assert, it } from "@effect/vitest"
import { Context, Effect, Layer, Logger } from "effect"
import { HttpServer } from "effect/http"
import { Pool } from "undici"
import { layerMemory as layerBackend, replyWith } from "../../support/twins/Backend.ts"
import { extraSurfaces } from "../../../src/domain/Surface.ts"
import { makeMemory as makeKeys, type MemoryKey, memoryKey } from "../../support/twins/KeyStore.ts"
import type { Json } from "../../../src/domain/Inference.ts"
import { KeyStore } from "../../../src/gates/keys/KeyStore.ts"
import { layerMemory as layerDiscovery } from "../../support/twins/Discovery.ts"
import { routes } from "../../../src/http/routes.ts"
import { clientHeaders } from "../../../src/http/server/headers.ts"
import { layerInMemory } from "../../support/inMemory.ts"
import { modelNamed } from "../../support/permits.ts"
import { jsonLine, requestLine, RequestLines, shortRequestLine } from "../../../src/observability/logging.ts"
import { Traced } from "../../../src/observability/Trace.ts"
import { bodiesWith } from "../../support/requestFields.ts"

/** No request may take more, in ms of CPU of client and gateway together. */
const mostMs = 20
/** Nor more than so many times what letters of the same length take. */
const mostTimes = 10
/** A request that seems to take too much is sent again: a busy machine adds CPU now and then, and never takes any away. */
const tries = 10

const headerBytes = 15_000
/** What takes the square of it is over the bounds: `readSlowly` takes 30 ms. A larger body would wait for its turn to be decoded. */
const bodyBytes = 16_384

/** Texts that parsers and patterns find hard. Each is repeated to the size that is wanted. */
const nasty: Readonly<Record<string, string>> = {
  blanks: " ",
  "escaped percents": "%25",
  "escaped backslashes": String.raw`\u005c`,
  "halves of keys": "_%5faaaaaaaaa",
  "ends of keys": `_${"a".repeat(24)}`,
  quotes: '"',
  backslashes: "\\",
  brackets: "[{(",
  digits: "0",
  "two bytes": "\u00e9"
}

const nastyInHeaders: Readonly<Record<string, string>> = {
  ...nasty,
  tabs: "\t",
  commas: ",",
  semicolons: ";",
  "parameters of a type": '; charset="',
  addresses: "10.0.0.1,",
  "addresses of IPv6": "[::ffff:0a00:0001]:1,",
  dashes: "-a"
}

const nastyInFields: Readonly<Record<string, string>> = {
  ...nasty,
  // Each is one character short of a run that the model server's tokenizer does not survive.
  marks: `${"\u0301".repeat(4095)} `,
  emoji: `${"\u{1f600}".repeat(2047)} `,
  controls: "\u0001",
  lines: "\n"
}

const sized = (unit: string, size: number): string =>
  unit.repeat(Math.ceil(size / unit.length)).slice(0, size)

/**
 * Takes the square of the length of a text: a millisecond for 2,048 characters, 60 for 15,000. What reads a text behind the
 * edge may be as slow, because the edge has cut the text.
 */
const readSlowly = (text: string): boolean => /[^]+\0/.test(text.slice(0, text.length / 2))

const endUserHeader = "x-end-user"

interface Order {
  readonly method?: "GET" | "POST"
  readonly path?: string
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string
}

interface Outcome {
  readonly ms: number
  readonly status: number
}

const plenty = { perSecond: 1_000_000, burst: 1_000_000 }

/** A gateway in this process behind a trusted proxy, with everything on that reads a text of a client. */
const makeSend = Effect.gen(function* () {
  const keys = makeKeys()
  const proxies = new BlockList()
  proxies.addSubnet("127.0.0.0", 8)
  proxies.addSubnet("10.0.0.0", 8)
  const model = {
    ...modelNamed("m:latest"),
    capabilities: ["completion", "vision", "tools", "thinking", "insert", "embedding"],
    // Its prompts are searched for long runs of characters.
    tokenizer: { kind: "gpt2", split: "qwen2" },
    contextLength: 1_000_000
  }
  const slowKeys = Layer.effect(
    KeyStore,
    Effect.map(KeyStore, (store) => ({
      ...store,
      verify: (secret: string | undefined, group: string) => {
        readSlowly(secret ?? "")
        return store.verify(secret, group)
      }
    }))
  ).pipe(Layer.provide(keys.layer))
  const gateway = layerInMemory({
    keyStore: slowKeys,
    discovery: layerDiscovery([model], {}, { defaultTokens: 1_000_000, refuses: true }),
    backend: layerBackend({
      models: Effect.succeed([model]),
      reply: ({ numPredict }) => Effect.succeed(replyWith(["Hello"], numPredict)),
      embed: () => Effect.succeed({ vectors: [], promptTokens: 1 }),
      show: () => Effect.succeed({})
    }),
    server: {
      bounds: {
        connections: 100,
        connectionsPerAddress: 100,
        newConnections: plenty,
        // Nothing waits, so that nothing else is measured.
        anonymousRefusals: plenty,
        anonymousRowsPerMinute: 1_000_000
      },
      trustedProxies: proxies,
      playground: true,
      extraSurfaces: new Set(extraSurfaces),
      refusesOverflow: true,
      numCtxCap: 1_000_000
    }
  }).pipe(
    Layer.provide(
      Layer.mergeAll(
        Layer.succeed(Traced, true),
        Layer.succeed(RequestLines, (record) => {
          const { alias, arrival, endUser, model } = record
          for (const text of [
            alias,
            endUser,
            model,
            arrival.clientRequestId,
            arrival.clientIp,
            arrival.endpoint
          ])
            readSlowly(text ?? "")
          return Effect.andThen(requestLine(record), shortRequestLine(record))
        }),
        Logger.layer([Logger.make((options) => void jsonLine.log(options))])
      )
    )
  )
  const address = Context.get(yield* Layer.build(gateway), HttpServer.HttpServer).address
  const pool = yield* Effect.acquireRelease(
    Effect.sync(() => new Pool(HttpServer.formatAddress(address), { connections: 1 })),
    (pool) => Effect.promise(() => pool.destroy())
  )
  const newKey = (): MemoryKey => {
    const key = memoryKey({ endUserHeader })
    keys.add(key)
    return key
  }
  return ({ body, headers = {}, method = "POST", path = "/api/chat" }: Order) =>
    Effect.promise(async (): Promise<Outcome> => {
      // Each request has its own key, so no limit of a key refuses it before it is read.
      const { secret } = newKey()
      const before = process.cpuUsage()
      const response = await pool.request({
        method,
        path,
        headers: { authorization: `Bearer ${secret}`, "content-type": "application/json", ...headers },
        ...(body === undefined ? {} : { body })
      })
      await response.body.dump({ limit: 10_000_000 })
      const { system, user } = process.cpuUsage(before)
      return { ms: (user + system) / 1000, status: response.statusCode }
    })
})

type Send = Effect.Success<typeof makeSend>

/**
 * What the request took, in ms of CPU, when each of its tries took more than the bounds; else nothing. The first try stands beside
 * `lettersMs`, each other one beside letters of its own moment: a busy machine makes both dearer.
 */
const takesTooMuch = Effect.fnUntraced(function* (
  send: Send,
  order: Order,
  letters: Order,
  lettersMs: number
) {
  let beside = lettersMs
  let least = Number.POSITIVE_INFINITY
  for (let n = 0; n < tries; n += 1) {
    const { ms } = yield* send(order)
    if (ms <= Math.min(mostMs, mostTimes * beside)) return undefined
    least = Math.min(least, ms)
    // Nothing else explains so much.
    if (least > 20 * mostMs) return least
    beside = (yield* send(letters)).ms
  }
  return least
})

/** A place of a request where a text may stand. `make` returns nothing when the text cannot be sent there. */
interface Place {
  readonly name: string
  readonly make: (unit: string) => Order | undefined
}

/** Some places at which a text takes too much. */
const tooDear = Effect.fnUntraced(function* (
  send: Send,
  places: ReadonlyArray<Place>,
  texts: Readonly<Record<string, string>>
) {
  const found: Array<string> = []
  for (const { make, name } of places) {
    const letters = make("a")
    assert.isDefined(letters, name)
    if (letters === undefined) continue
    const lettersMs = (yield* send(letters)).ms
    for (const [text, unit] of Object.entries(texts)) {
      const order = make(unit)
      if (order === undefined) continue
      const ms = yield* takesTooMuch(send, order, letters, lettersMs)
      if (found.length === 5) return found
      if (ms !== undefined)
        found.push(`${name}, ${text}: ${ms.toFixed(1)} ms, letters ${lettersMs.toFixed(1)} ms`)
    }
  }
  return found
})

const hello = JSON.stringify({ model: "m", stream: false, messages: [{ role: "user", content: "Hello" }] })

/** The bytes of the text, as Node's clients send them. */
const headerValue = (unit: string): string | undefined => {
  const value = sized(Buffer.from(unit).toString("latin1"), headerBytes)
  // oxlint-disable-next-line no-control-regex
  return /[^\t\x20-\x7e\x80-\xff]/.test(value) ? undefined : value
}

/** Node itself reads these, and refuses a request in which they are wrong; undici, which sends here, writes `upgrade` itself. */
const ofNode = new Set(["content-length", "expect", "host", "transfer-encoding", "upgrade"])

/** What makes the parser of a header go on. */
const starts: Readonly<Record<string, string>> = {
  "accept-encoding": "gzip",
  authorization: "Bearer ",
  "content-type": "application/json",
  traceparent: "00-",
  "x-api-key": "tg_"
}

const headerPlaces: ReadonlyArray<Place> = [...Object.keys(clientHeaders), endUserHeader, "x-unknown"]
  .filter((name) => !ofNode.has(name))
  .flatMap((name) =>
    ["", ...(starts[name] === undefined ? [] : [starts[name]])].map((start) => ({
      name: `${name}: ${start}…`,
      make: (unit: string) => {
        const value = headerValue(unit)
        // A blank at an end is no part of a value.
        return value === undefined ? undefined : { headers: { [name]: `${start}${value}x` }, body: hello }
      }
    }))
  )

/** Pages that need no key. The others read their headers as a chat does. */
const pagePlaces: ReadonlyArray<Place> = routes
  .filter(({ method, needs }) => method === "GET" && needs === "nothing")
  .flatMap(({ path }) =>
    ["accept-encoding", "host", "x-request-id", "x-forwarded-for"].map((name) => ({
      name: `${path}, ${name}`,
      make: (unit: string) => {
        const value = headerValue(unit)
        return value === undefined
          ? undefined
          : { method: "GET" as const, path, headers: { [name]: `gzip${value}x` } }
      }
    }))
  )

const targetPlaces: ReadonlyArray<Place> = ["/", "/api/chat?", "/api/chat"].map((start) => ({
  name: `target ${start}…`,
  make: (unit) => {
    const target = start + sized(unit, headerBytes)
    return /[^\x21-\x7e]/.test(target) ? undefined : { path: target, body: hello }
  }
}))

/** Stands for the text in the bodies. Letters, and as many as base64 may have. */
const marker = "qxzjqxzj"

/** The body with the text of `unit` where the marker is, at full size. */
const bodyWith = (body: Json, unit: string): string => {
  const whole = JSON.stringify(body)
  // A file is base64, which takes four thirds of the text.
  if (!whole.includes(marker))
    return whole.replaceAll(btoa(marker), () =>
      Buffer.from(unit.repeat(bodyBytes / 2))
        .subarray(0, bodyBytes / 2)
        .toString("base64")
    )
  const parts = whole.split(marker)
  const room = (bodyBytes - parts.join("").length) / (parts.length - 1)
  // JSON has escapes for some characters.
  const escaped = JSON.stringify(unit).slice(1, -1)
  return parts.join(escaped.repeat(Math.floor(room / Buffer.byteLength(escaped))))
}

/** Each text of each body: in a body that is accepted with a short text, if there is one. */
const fieldPlaces = Effect.fnUntraced(function* (send: Send) {
  const places: Array<Place> = []
  for (const route of routes) {
    if (!("dialect" in route)) continue
    const { path } = route
    const filled = bodiesWith(route.dialect.accepts, marker).map(({ body, path: field }) => ({
      field,
      body: field === "model" ? body : { ...Object(body), model: "m" }
    }))
    for (const [field, bodies] of Map.groupBy(filled, ({ field }) => field)) {
      let chosen = bodies[0]?.body ?? null
      for (const { body } of bodies) {
        const { status } = yield* send({ path, body: JSON.stringify(body) })
        if (status !== 200) continue
        chosen = body
        break
      }
      places.push({ name: `${path} ${field}`, make: (unit) => ({ path, body: bodyWith(chosen, unit) }) })
    }
  }
  return places
})

const withGateway = <A, E, R>(use: (send: Send) => Effect.Effect<A, E, R>) =>
  Effect.scoped(
    Effect.gen(function* () {
      const send = yield* makeSend
      // Compiled code is measured.
      for (let n = 0; n < 100; n += 1) yield* send({ body: hello })
      return yield* use(send)
    })
  )

it.live("when a header or a path has any long text, then its request takes little CPU", () =>
  withGateway((send) =>
    Effect.gen(function* () {
      const places = [...headerPlaces, ...pagePlaces, ...targetPlaces]
      assert.deepStrictEqual(yield* tooDear(send, places, nastyInHeaders), [])
    })
  )
)

it.live("when a field of a body has any long text, then its request takes little CPU", () =>
  withGateway((send) =>
    Effect.gen(function* () {
      const places = yield* fieldPlaces(send)
      assert.isAbove(places.length, 80)
      assert.deepStrictEqual(yield* tooDear(send, places, nastyInFields), [])
    })
  )
)
