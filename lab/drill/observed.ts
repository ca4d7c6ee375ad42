/** What an outage looks like from outside: counted answers, log lines, and gauges that say that something is wrong. */
import { Effect, Schema } from "effect"

export const tally = (words: ReadonlyArray<string>): string => {
  const counts = new Map<string, number>()
  for (const word of words) counts.set(word, (counts.get(word) ?? 0) + 1)
  return [...counts]
    .toSorted(([, a], [, b]) => b - a)
    .map(([word, count]) => `${count} × ${word}`)
    .join(", ")
}

const Line = Schema.fromJsonString(
  Schema.Struct({
    message: Schema.String,
    gate: Schema.optional(Schema.String),
    dependency: Schema.optional(Schema.String),
    task: Schema.optional(Schema.String),
    fault: Schema.optional(Schema.String)
  })
)

/** Each different line once, with what tells it apart. */
export const linesOf = (log: ReadonlyArray<string>) =>
  Effect.forEach(log, (text) =>
    Effect.match(Schema.decodeEffect(Line)(text), {
      onFailure: () => `no log line: ${text.slice(0, 100)}`,
      onSuccess: ({ dependency, fault, gate, message, task }) => {
        const field = gate ?? dependency ?? task ?? fault
        return field === undefined ? `\`${message}\`` : `\`${message}\` (${field})`
      }
    })
  ).pipe(Effect.map((lines) => [...new Set(lines)]))

/** Refused and failed requests of a replica so far, by status. */
const failuresIn = (text: string): ReadonlyMap<string, number> => {
  const sums = new Map<string, number>()
  for (const [, status = "", value] of text.matchAll(
    /^gateway_requests_total\{.*status="(5\d\d)"\} (\S+)$/gm
  )) {
    sums.set(status, (sums.get(status) ?? 0) + Number(value))
  }
  return sums
}

/** What says that something is wrong, as a replica that answers shows it. `before`: what it showed before the outage. */
export const wrongGauges = (text: string, before: string): ReadonlyArray<string> => {
  const figure = (name: string) => {
    const value = new RegExp(`^${name} (\\S+)$`, "m").exec(text)?.[1]
    return value === undefined ? undefined : Number(value)
  }
  const down = ["database", "cache", "backend"].filter(
    (name) => figure(`tollgate_ready\\{dependency="${name}"\\}`) === 0
  )
  const earlier = failuresIn(before)
  const risen = [...failuresIn(text)].filter(([status, count]) => count > (earlier.get(status) ?? 0))
  return [
    ...down.map((name) => `\`ready{${name}}\` 0`),
    ...(figure("tollgate_breaker_state") === 2 ? ["`breaker_state` 2"] : []),
    ...(figure("tollgate_discovery_models") === 0 ? ["`discovery_models` 0"] : []),
    ...((figure("tollgate_audit_lag_seconds") ?? 0) > 2 ? ["`audit_lag` > 2 s"] : []),
    ...risen.map(([status]) => `\`requests_total{${status}}\` rises`)
  ]
}

export const scrape = (url: string) =>
  Effect.promise(() =>
    fetch(`${url}/metrics`, { signal: AbortSignal.timeout(3000) })
      .then((response) => response.text())
      .catch(() => undefined)
  )
