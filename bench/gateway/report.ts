/** Samples as a table: medians over the rounds, half the range as spread, ratios to the floor. */
import type { ContenderName } from "./contenders.ts"
import type { Sample } from "./measure.ts"
import type { Work } from "./works.ts"

export const median = (values: ReadonlyArray<number>): number =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN

const spread = (values: ReadonlyArray<number>): string =>
  `±${Math.round((100 * (Math.max(...values) - Math.min(...values))) / 2 / (median(values) || 1))} %`

const percent = (share: number): string => `${(100 * share).toFixed(0)} %`
const ms = (us: number, digits = 2): string => (us / 1000).toFixed(digits)

export const reportOf = (work: Work, samples: ReadonlyMap<ContenderName, ReadonlyArray<Sample>>): string => {
  const floor = samples.get("floor")
  const load =
    work.rate === undefined ? `${work.connections} connections` : `${work.rate} requests a second, open loop`
  const lines = [`### ${work.name} (${load})`, ""]
  const frames = work.frames !== undefined
  lines.push(
    `| | req/s | of the floor | CPU µs/request | of its stores |${frames ? " CPU µs/frame |" : ""} first byte p50 / p99 ms |${work.paced ? " frame delay p50 / p99 ms |" : ""} RSS MiB | core 0 / core 1 busy, of that the load | answers |`,
    `|---|---|---|---|---|${frames ? "---|" : ""}---|${work.paced ? "---|" : ""}---|---|---|`
  )
  for (const [name, of] of samples) {
    const at = (figure: Exclude<keyof Sample, "statuses">) => median(of.map((sample) => sample[figure]))
    const rates = of.map(({ rps }) => rps)
    const ratio = floor === undefined ? "" : (at("rps") / median(floor.map(({ rps }) => rps))).toFixed(2)
    lines.push(
      `| ${name} | ${at("rps").toFixed(0)} ${spread(rates)} | ${ratio} | ${at("cpuPerRequest").toFixed(0)} | ${at("storesPerRequest").toFixed(0)} |` +
        (frames ? ` ${at("cpuPerFrame").toFixed(2)} |` : "") +
        ` ${ms(at("firstP50"))} / ${ms(at("firstP99"))} |` +
        (work.paced ? ` ${ms(at("frameP50"), 3)} / ${ms(at("frameP99"), 3)} |` : "") +
        ` ${at("rss").toFixed(0)} | ${percent(at("core0"))} / ${percent(at("core1"))}, ${percent(at("loadShare"))} | ${of.at(-1)?.statuses ?? ""} |`
    )
  }
  return `${lines.join("\n")}\n`
}
