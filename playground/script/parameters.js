/** The fields of the request beside its messages: parameters, reasoning, format and tools. */
import { $, all, element, withAttributes } from "./dom.js"

const number = (name, label, range, hint = "default") => ({ name, label, range, hint })
const both = [
  number("temperature", "Temperature", { min: 0, max: 2, step: 0.1 }),
  number("top_p", "Top p", { min: 0, max: 1, step: 0.05 })
]
const penalties = [
  number("presence_penalty", "Presence penalty", { min: -2, max: 2, step: 0.1 }),
  number("frequency_penalty", "Frequency penalty", { min: -2, max: 2, step: 0.1 })
]
const seed = number("seed", "Seed", { step: 1 }, "random")
const most = (name) => number(name, "Max tokens", { min: 1, step: 1 })

/** On each surface under its own names. */
const fields = {
  native: [
    ...both,
    most("num_predict"),
    seed,
    number("top_k", "Top k", { min: -1, step: 1 }),
    number("min_p", "Min p", { min: 0, max: 1, step: 0.05 }),
    number("repeat_penalty", "Repeat penalty", { min: 0.01, max: 100, step: 0.01 }),
    ...penalties
  ],
  openai: [...both, most("max_completion_tokens"), seed, ...penalties]
}

const efforts = {
  "": "As the model does",
  off: "Off",
  on: "On",
  low: "Low",
  medium: "Medium",
  high: "High"
}

/** What was typed, by name, so that it is there again when the surface is changed back. */
const typed = new Map()
const shared = { max_completion_tokens: "num_predict" }
const slot = (name) => shared[name] ?? name

export const surface = () => all("input[name=surface]:checked")[0].value

const valueOf = (input) => {
  if (input.tagName === "TEXTAREA") {
    const stops = input.value.split("\n").filter((line) => line !== "")
    return stops.length > 0 ? stops : undefined
  }
  if (input.tagName === "SELECT") return undefined
  return input.value.trim() === "" || Number.isNaN(input.valueAsNumber) ? undefined : input.valueAsNumber
}

export const options = () =>
  Object.fromEntries(
    all("#parameters [data-name]")
      .map((input) => [input.dataset.name, valueOf(input)])
      .filter(([, value]) => value !== undefined)
  )

export const reasoning = () => $("reasoning")?.value ?? ""

const count = () => {
  const set = Object.keys(options()).length + (reasoning() === "" ? 0 : 1)
  $("parameters-count").textContent = set === 0 ? "" : `${set} set`
}

const labelled = (text, input, className = "") => element("label", `column ${className}`, text, input)

/** Builds the fields of the surface. A model that cannot reason has no field for it. */
export const showParameters = (canReason) => {
  const before = reasoning()
  const made = fields[surface()].map(({ name, label, range, hint }) => {
    const attributes = { type: "number", placeholder: hint, autocomplete: "off", inputmode: "decimal" }
    const input = withAttributes(element("input"), { ...attributes, ...range, "data-name": name })
    input.value = typed.get(slot(name)) ?? ""
    return labelled(label, input)
  })
  const stop = element("textarea")
  Object.assign(stop, { rows: 2, autocomplete: "off", value: typed.get("stop") ?? "" })
  stop.dataset.name = "stop"
  made.push(labelled("Stop texts, one a line", stop, "wide"))
  if (canReason) {
    const options = Object.entries(efforts).map(
      ([value, text]) => new Option(text, value, false, value === before)
    )
    const select = element("select", "", ...options)
    select.id = "reasoning"
    made.push(labelled("Reasoning", select, "wide"))
  }
  $("parameters").replaceChildren(...made)
  count()
}

$("parameters").addEventListener("input", ({ target }) => {
  if (target.dataset.name) typed.set(slot(target.dataset.name), target.value)
  count()
})
