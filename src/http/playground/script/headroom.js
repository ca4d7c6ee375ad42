/** Shows what is left of limits and budgets, from the headers of each answer. */
import { $, number } from "./elements.js"
import { ask } from "./surfaces.js"

const gauge = (id, left, limit, label) => {
  const box = $(id)
  const share = limit > 0 ? Math.max(0, Math.min(1, left / limit)) : 0
  if (label) box.querySelector("span").textContent = label
  box.querySelector("output").textContent = `${number(left)} of ${number(limit)}`
  const bar = box.querySelector(".bar")
  bar.firstElementChild.style.width = `${share * 100}%`
  bar.setAttribute("aria-valuemax", String(limit))
  bar.setAttribute("aria-valuenow", String(left))
  box.classList.toggle("low", share <= 0.2 && left > 0)
  box.classList.toggle("out", left <= 0)
}

const noGauge = (id, text, label) => {
  const box = $(id)
  if (label) box.querySelector("span").textContent = label
  box.querySelector("output").textContent = text
  box.querySelector("i").style.width = "0"
  box.querySelector(".bar").removeAttribute("aria-valuenow")
  box.classList.remove("low", "out")
}

/** The largest remainder of a budget so far, because the headers do not contain its size. */
const budgetSeen = new Map()

export const showHeadroom = (headers) => {
  const of = (name) => (headers.get(name) === null ? undefined : Number(headers.get(name)))
  for (const [id, noun] of [
    ["gauge-requests", "requests"],
    ["gauge-tokens", "tokens"]
  ]) {
    const [limit, left] = [of(`x-ratelimit-limit-${noun}`), of(`x-ratelimit-remaining-${noun}`)]
    if (limit !== undefined && left !== undefined) gauge(id, left, limit)
  }
  const [period, left] = [headers.get("x-budget-period"), of("x-budget-tokens-remaining")]
  if (period !== null && left !== undefined) {
    const most = Math.max(left, budgetSeen.get(period) ?? 0)
    budgetSeen.set(period, most)
    gauge("gauge-budget", left, most, `Budget (${period})`)
    $("gauge-budget").querySelector("output").textContent = `${number(left)} left`
  } else if (headers.has("x-ratelimit-limit-requests")) noGauge("gauge-budget", "no budget set", "Budget")
}

/** `/api/version` consumes nothing. Its headers show what the answer has cost. */
export const refreshHeadroom = async () => {
  const response = await ask("/api/version").catch(() => undefined)
  if (response?.ok) showHeadroom(response.headers)
}

export const forgetHeadroom = () => {
  budgetSeen.clear()
  for (const id of ["gauge-requests", "gauge-tokens", "gauge-budget"]) noGauge(id, "–")
}
