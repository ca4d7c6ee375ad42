/** One contender at one work for a while: what came of it, and what it cost. */
import { Effect, Schema } from "effect"
import type { Contender } from "./contenders.ts"
import { costOf, file, launch } from "./processes.ts"
import type { Work } from "./works.ts"

const Load = Schema.fromJsonString(
  Schema.Struct({
    rps: Schema.Finite,
    requests: Schema.Finite,
    firstP50: Schema.Finite,
    firstP99: Schema.Finite,
    frameP50: Schema.Finite,
    frameP99: Schema.Finite,
    frames: Schema.Finite,
    statuses: Schema.Record(Schema.String, Schema.Finite)
  })
)

export interface Sample {
  readonly rps: number
  /** µs */
  readonly cpuPerRequest: number
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
}

const load = (contender: Contender, work: Work, seconds: number) =>
  Effect.callback<string>((resume) => {
    const child = launch(1, [file("load.ts")], {
      URL: contender.url + work.path,
      KEY: contender.keys[work.key ?? "good"],
      HEADERS: JSON.stringify(contender.headers ?? {}),
      BODY: work.body,
      CONNECTIONS: String(work.connections),
      SECONDS: String(seconds)
    })
    let text = ""
    child.stdout?.setEncoding("utf8").on("data", (chunk: string) => (text += chunk))
    child.on("close", () => resume(Effect.succeed(text)))
  }).pipe(Effect.flatMap(Schema.decodeUnknownEffect(Load)))

export const measure = Effect.fnUntraced(function* (contender: Contender, work: Work, seconds: number) {
  const before = costOf(contender.child)
  const result = yield* load(contender, work, seconds)
  const after = costOf(contender.child)
  const cpu = (after.cpu - before.cpu) * 1e6
  return {
    ...result,
    cpuPerRequest: cpu / result.requests,
    cpuPerFrame: work.frames === undefined ? 0 : cpu / result.requests / work.frames,
    rss: after.rss,
    statuses: Object.entries(result.statuses)
      .map(([status, count]) => `${status}×${count}`)
      .join(" ")
  } satisfies Sample
})
