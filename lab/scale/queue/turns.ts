/** Two models on a server that holds one: with the server's own order, with turns, and with turns that are disturbed. */
import { Effect, Fiber } from "effect"
import { type Figure, figure, percentile } from "../figures.ts"
import { newKey } from "../World.ts"
import { flood, nowAndThen } from "./clients.ts"
import { Ground, slots } from "./Ground.ts"
import type { Plan } from "./parts.ts"

/** A load is worth eight answers, as in `test/support/turns.ts`. */
const loadsWorth = 8
const leaseS = 3

const world = Effect.fnUntraced(function* (
  plan: Plan,
  name: string,
  env: Readonly<Record<string, string>>,
  disturbs: boolean
) {
  const { backend, redis, replicas } = yield* Ground
  const loadMs = loadsWorth * plan.serviceMs
  backend.setServiceMs(plan.serviceMs)
  backend.setLoadMs(loadMs)
  const both = yield* replicas({
    ...env,
    CONCURRENCY_LEASE_S: String(leaseS),
    MODEL_DISCOVERY_REFRESH_S: "1"
  })
  const urls = both.map(({ url }) => url)
  const keys = yield* Effect.forEach(["flood", "team", "light"], (tenant) => newKey(`${name}-${tenant}`))
  const [many, team, light] = keys
  if (many === undefined || team === undefined || light === undefined) return yield* Effect.die("no keys")
  const runs = [
    yield* flood(urls, many, 40, ["a:latest", "b:latest"]),
    yield* flood(urls, team, 8, ["b:latest"]),
    yield* nowAndThen(urls, [light], 60 * plan.serviceMs, "a:latest")
  ]
  yield* Effect.sleep(2 * loadMs)
  backend.reset()
  const since = performance.now()
  /** after each disturbance: seconds until there are answers, and how long the server had nothing to do */
  const stood: Array<{ readonly answers: number; readonly idle: number }> = []
  while (performance.now() - since < plan.seconds * 1000) {
    yield* Effect.sleep(Math.max(5000, plan.seconds * 200))
    if (!disturbs) continue
    const served = backend.served()
    const begun = performance.now()
    const [replica] = both
    const again = yield* Effect.forkScoped(
      stood.length % 2 === 0
        ? Effect.promise(() => redis.flushall())
        : Effect.andThen(replica.kill, replica.start)
    )
    // The requests that have places end meanwhile.
    let idle = 0
    for (
      let last = performance.now();
      backend.served() <= served + slots && last - begun < 60_000;
      last = performance.now()
    ) {
      yield* Effect.sleep("20 millis")
      if (backend.here() === 0) idle += performance.now() - last
    }
    stood.push({ answers: (performance.now() - begun) / 1000, idle: idle / 1000 })
    yield* Fiber.join(again)
  }
  const perSecond = (backend.served() * 1000) / (performance.now() - since)
  const [loads, most] = [backend.loads(), backend.most()]
  const waits = runs.map(({ answers }) => answers.map(({ ms }) => (ms - plan.serviceMs) / plan.serviceMs))
  const refused = runs.flatMap(({ answers }) =>
    answers.filter(({ status }) => status !== 200 && status !== 0)
  )
  const marked = runs.flatMap(({ answers }) =>
    answers.filter(({ headers }) => headers["x-model-loaded"] === "false")
  )
  yield* Effect.forEach(runs, ({ stop }) => stop, { concurrency: "unbounded", discard: true })
  backend.setLoadMs(0)
  return {
    perSecond,
    loads,
    most,
    lightP95: percentile(waits[2] ?? [], 0.95),
    refused,
    marked: marked.length,
    stood
  }
}, Effect.scoped)

export const turns = Effect.fnUntraced(function* (plan: Plan) {
  const queue = {
    BACKEND_MAX_CONCURRENT: String(slots),
    BACKEND_MAX_LOADED_MODELS: "1",
    QUEUE_MAX_WAIT_MS: "600000",
    MODEL_TURN_MAX_MS: String(30 * plan.serviceMs)
  }
  const own = yield* world(plan, "own", {}, false)
  const served = yield* world(plan, "turns", queue, false)
  const learned = yield* world(plan, "learned", { ...queue, BACKEND_MAX_LOADED_MODELS: "" }, false)
  const disturbed = yield* world(plan, "disturbed", queue, true)
  const bound = 2 * loadsWorth + 30 + 3
  const figures: ReadonlyArray<Figure> = [
    figure("the server's own order: answers a second; loads", `${own.perSecond.toFixed(2)}; ${own.loads}`),
    figure("turns: answers a second; loads", `${served.perSecond.toFixed(2)}; ${served.loads}`),
    figure(
      "turns: times the server's own order (at least 3)",
      served.perSecond / own.perSecond,
      (n) => n >= 3
    ),
    figure("the same, learned", learned.perSecond / own.perSecond, (n) => n >= 3),
    figure("own order: wait p95 of the light tenant, service times (NaN: no answer yet)", own.lightP95),
    figure(`turns: the same (at most ${bound})`, served.lightP95, (n) => n <= bound),
    figure("turns: answers with X-Model-Loaded: false", served.marked, (n) => n > 0),
    figure("turns: requests refused", served.refused.length + learned.refused.length, (n) => n === 0),
    figure("turns: most requests at the server", Math.max(served.most, learned.most), (n) => n <= slots),
    figure("FLUSHALL and kill -9 in turns", disturbed.stood.length, (n) => n >= 2),
    figure("most requests of living replicas at the server", disturbed.most, (n) => n <= slots),
    figure(
      "then the server had nothing to do for, seconds (at most 5)",
      Math.max(...disturbed.stood.map(({ idle }) => idle)),
      (n) => n <= 5
    ),
    figure(
      "seconds until the next answers, with a load, at most",
      Math.max(...disturbed.stood.map(({ answers }) => answers))
    ),
    figure("answers a second", disturbed.perSecond)
  ]
  return figures
})
