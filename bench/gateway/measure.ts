/** One contender at one work for a while: what came of it, and what it cost. */
import { Effect, Schema } from "effect"
import type { Contender } from "./contenders.ts"
import { coresSoFar, costOf, costOfPid, file, launch } from "./processes.ts"
import { bodyOf, type Work } from "./works.ts"

const Load = Schema.fromJsonString(
  Schema.Struct({
    rps: Schema.Finite,
    requests: Schema.Finite,
    firstP50: Schema.Finite,
    firstP99: Schema.Finite,
    frameP50: Schema.Finite,
    frameP99: Schema.Finite,
    frames: Schema.Finite,
    statuses: Schema.Record(Schema.String, Schema.Finite),
    loadShare: Schema.Finite
  })
)

export interface Sample {
  readonly rps: number
  /** µs */
  readonly cpuPerRequest: number
  /** µs of Postgres and Redis; 0: it has none */
  readonly storesPerRequest: number
  /** µs; of the whole request over its frames */
  readonly cpuPerFrame: number
  /** µs */
  readonly firstP50: number
  readonly firstP99: number
  /** µs a frame was under way */
  readonly frameP50: number
  readonly frameP99: number
  /** MiB */
  readonly rss: number
  readonly statuses: string
  /** how busy core 0 and core 1 were, and the load alone, 0 to 1 */
  readonly core0: number
  readonly core1: number
  readonly loadShare: number
}

const load = (asked: Contender, work: Work, seconds: number) =>
  Effect.callback<string>((resume) => {
    const child = launch("1", [file("load.ts")], {
      URL: asked.url + work.path,
      KEY: asked.key,
      BODY: bodyOf(work, asked.prefix),
      PACED: work.paced === true ? "yes" : "",
      CONNECTIONS: String(work.connections),
      RATE: String(work.rate ?? ""),
      SECONDS: String(seconds)
    })
    let text = ""
    child.stdout?.setEncoding("utf8").on("data", (chunk: string) => (text += chunk))
    child.on("close", () => resume(Effect.succeed(text)))
  }).pipe(Effect.flatMap(Schema.decodeUnknownEffect(Load)))

export const measure = Effect.fnUntraced(function* (asked: Contender, work: Work, seconds: number) {
  const storesSoFar = () => (asked.stores ?? []).reduce((sum, pid) => sum + costOfPid(pid).cpu, 0)
  const [before, coresBefore, storesBefore] = [costOf(asked.child), coresSoFar(), storesSoFar()]
  const result = yield* load(asked, work, seconds)
  const [after, coresAfter] = [costOf(asked.child), coresSoFar()]
  const [core0 = Number.NaN, core1 = Number.NaN] = coresAfter.map(({ busy, all }, n) => {
    const first = coresBefore[n] ?? { busy: 0, all: 0 }
    return (busy - first.busy) / (all - first.all)
  })
  const cpu = (after.cpu - before.cpu) * 1e6
  return {
    ...result,
    core0,
    core1,
    cpuPerRequest: cpu / result.requests,
    storesPerRequest: ((storesSoFar() - storesBefore) * 1e6) / result.requests,
    cpuPerFrame: work.frames === undefined ? 0 : cpu / result.requests / work.frames,
    rss: after.rss,
    statuses: Object.entries(result.statuses)
      .map(([status, count]) => `${status}×${count}`)
      .join(" ")
  } satisfies Sample
})
