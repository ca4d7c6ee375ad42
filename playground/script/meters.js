/** The meters of limits and budget, and the chip beside the composer. */
import { ask } from "./ask.js"
import { $, element, withAttributes } from "./dom.js"
import { duration, number, percent } from "./figures.js"
import { levelOf, tightestOf, tightestText, usageOf, usedText } from "./usage.js"

/** When each entry is full again, on the clock of this page. */
let entries = []

const noteOf = ({ left, limit, resetAt, shared }) => {
  const whose = shared ? " for all keys of your team" : ""
  const rest = limit === undefined ? whose.trim() : `${number(left)} left${whose}`
  const seconds = resetAt === undefined ? undefined : (resetAt - performance.now()) / 1000
  if (seconds === undefined || seconds <= 0) return rest
  return `${rest}${rest && ", "}resets in ${duration(seconds)}`
}

const meterOf = (name) => {
  const id = `label-${name}`
  const [label, output, note] = [element("span"), element("output"), element("small")]
  const bar = element("div", "bar", element("i"))
  withAttributes(bar, { role: "meter", "aria-labelledby": id, "aria-valuemin": "0" })
  output.setAttribute("aria-labelledby", id)
  label.id = id
  const box = element("div", "meter", label, output, bar, note)
  box.id = `meter-${name}`
  $("usage").append(box)
  return { box, label, output, bar, note }
}
const meters = { budget: meterOf("budget"), tokens: meterOf("tokens"), requests: meterOf("requests") }

/** `used` takes the place of figures that there are not. */
const show = (entry, used = usedText(entry)) => {
  const { bar, box, label, note, output } = meters[entry.name]
  const { left = 0, limit = left, share } = entry
  label.textContent = entry.label
  output.textContent = used
  note.textContent = entry.left === undefined ? "" : noteOf(entry)
  bar.firstElementChild.style.width = `${(share ?? 0) * 100}%`
  withAttributes(bar, {
    "aria-valuemax": limit,
    "aria-valuenow": Math.min(limit, limit - left),
    "aria-valuetext": share === undefined ? used : `${percent(share)} used`
  })
  box.dataset.level = levelOf(share)
}

const showChip = (tightest) => {
  const chip = $("chip")
  chip.hidden = tightest === undefined
  if (tightest === undefined) return
  const { left, name, share } = tightest
  chip.textContent =
    share >= 1 ? `No ${name} left` : `${number(left)} ${name === "budget" ? "tokens of budget" : name} left`
  chip.setAttribute("aria-label", `${chip.textContent}. Show limits and settings`)
  chip.dataset.level = levelOf(share)
}

export const showUsage = (headers) => {
  const usage = usageOf(headers)
  if (usage.length === 0) return
  const now = performance.now()
  entries = usage.map((entry) => ({
    ...entry,
    resetAt: entry.resetS === undefined ? undefined : now + entry.resetS * 1000
  }))
  for (const entry of entries) show(entry)
  if (!entries.some(({ name }) => name === "budget")) show({ name: "budget", label: "Budget" }, "none set")
  const tightest = tightestOf(entries)
  $("tightest").textContent = tightestText(tightest)
  showChip(tightest)
}

export const forgetUsage = () => {
  entries = []
  show({ name: "budget", label: "Budget" }, "–")
  show({ name: "tokens", label: "Tokens / min" }, "–")
  show({ name: "requests", label: "Requests / min" }, "–")
  $("tightest").textContent = "Shown as soon as a key is accepted."
  showChip(undefined)
}

/** `/api/version` costs nothing. Its headers show what the answer has cost. */
export const refreshUsage = async () => {
  const response = await ask("/api/version").catch(() => undefined)
  if (response?.ok) showUsage(response.headers)
}

/** What cut an answer short, as far as the limits tell it. */
export const whatCut = () => {
  const { name } = entries.findLast(({ left }) => left <= 0) ?? {}
  return name === "budget"
    ? "stopped at the budget"
    : name === "tokens"
      ? "stopped at the tokens of this minute"
      : "stopped at the bound on tokens"
}

let asked = 0
/** The time until a reset runs on screen; when it is over, the gateway is asked once. */
const tick = () => {
  if (document.hidden) return
  const now = performance.now()
  for (const entry of entries) {
    if (entry.resetAt === undefined) continue
    const [text, { note }] = [noteOf(entry), meters[entry.name]]
    if (note.textContent !== text) note.textContent = text
  }
  const due = entries.some(({ resetAt, share }) => resetAt !== undefined && resetAt < now && share > 0)
  if (due && now - asked > 5000) {
    asked = now
    void refreshUsage()
  }
}

forgetUsage()
setInterval(tick, 1000)
