/** What the headers of an answer say about limits and budgets. */
import { number, percent } from "./figures.js"

/** Seconds of a duration as the gateway writes it, such as `1m3s` or `86400`. */
export const secondsOf = (text) => {
  const read = /^(?:(\d+)m)?(\d+)s?$/.exec(text)
  return read === null ? undefined : Number(read[1] ?? 0) * 60 + Number(read[2])
}

const periods = {
  day: ["Budget today", "today's budget"],
  month: ["Budget this month", "this month's budget"],
  total: ["Budget in total", "the whole budget"]
}

const limitOf = (headers, noun, label, whole) => {
  const [limit, left] = ["limit", "remaining"].map((word) => headers.get(`x-ratelimit-${word}-${noun}`))
  if (limit === null || left === null) return []
  const resetS = secondsOf(headers.get(`x-ratelimit-reset-${noun}`))
  return [{ name: noun, label, whole, limit: Number(limit), left: Number(left), resetS }]
}

const budgetOf = (headers) => {
  const [period, left, limit] = ["period", "tokens-remaining", "tokens-limit"].map((word) =>
    headers.get(`x-budget-${word}`)
  )
  if (period === null || left === null) return []
  const [label, whole] = periods[period] ?? [`Budget (${period})`, "the budget"]
  return [
    {
      name: "budget",
      label,
      whole,
      shared: headers.get("x-budget-scope") === "tenant",
      limit: limit === null ? undefined : Number(limit),
      left: Number(left),
      resetS: period === "total" ? undefined : secondsOf(headers.get("x-budget-reset"))
    }
  ]
}

/** Limits first; the share is 0 to 1, or undefined when the size of a budget is not known. */
export const usageOf = (headers) =>
  [
    ...limitOf(headers, "requests", "Requests / min", "this minute's requests"),
    ...limitOf(headers, "tokens", "Tokens / min", "this minute's tokens"),
    ...budgetOf(headers)
  ].map((entry) => ({
    ...entry,
    share:
      entry.limit > 0
        ? Math.min(1, Math.max(0, 1 - entry.left / entry.limit))
        : entry.left > 0
          ? undefined
          : 1
  }))

/** Amber from 80 %, red from 95 %. */
export const levelOf = (share) =>
  share === undefined ? "" : share >= 0.95 ? "out" : share >= 0.8 ? "low" : ""

/** The limit with the largest share used: it refuses first. Of equals it is the budget, which takes longest to come back. */
export const tightestOf = (usage) =>
  usage
    .filter(({ share }) => share !== undefined)
    .toReversed()
    .toSorted((one, other) => other.share - one.share)
    .at(0)

export const usedText = ({ limit, left }) =>
  limit === undefined ? `${number(left)} left` : `${number(Math.max(0, limit - left))} of ${number(limit)}`

export const tightestText = (entry) =>
  entry === undefined
    ? ""
    : entry.share === 0
      ? "Nothing yet."
      : entry.share >= 1
        ? `All of ${entry.whole} is used: the next request is refused.`
        : `${percent(entry.share)} of ${entry.whole} used.`
