/** What the key used, by day and model, as `GET /api/usage` says. */
import { ask, keyOf, problemOf } from "./ask.js"
import { $, element, group, withAttributes } from "./dom.js"
import { number } from "./figures.js"
import { explain } from "./problems.js"

const name = "Use by day and model"
const row = (...cells) => element("tr", "", ...cells)
const heading = (text, attributes, className = "") =>
  withAttributes(element("th", className, text), attributes)
const figures = (...parts) => element("td", "right", ...parts)

const tableOf = (usage) => {
  const heads = row(
    heading("Model", { scope: "col" }),
    heading("Requests", { scope: "col" }, "right"),
    heading("Tokens", { scope: "col" }, "right")
  )
  const days = Object.entries(Object.groupBy(usage, ({ day }) => day)).map(([day, uses]) =>
    element(
      "tbody",
      "",
      row(heading(day, { scope: "rowgroup", colspan: heads.childElementCount })),
      ...uses.map(({ model, requests, tokens_in, tokens_out }) =>
        row(
          element("td", "", model),
          figures(number(requests)),
          figures(`${number(tokens_in)} in`, element("br"), `${number(tokens_out)} out`)
        )
      )
    )
  )
  const table = element("table", "", element("thead", "", heads), ...days)
  return withAttributes(element("div", "table uses", table), group(name))
}

/** What all rows together are, in words. */
export const usesText = ({ since, timezone, truncated, usage }) => {
  if (usage.length === 0) return `Nothing since ${since}.`
  const [requests, tokensIn, tokensOut] = ["requests", "tokens_in", "tokens_out"].map((column) =>
    number(usage.reduce((sum, use) => sum + use[column], 0))
  )
  const all = `${requests} ${requests === "1" ? "request" : "requests"}, ${tokensIn} tokens in and ${tokensOut} out`
  return `${all} since ${since}. Days of ${timezone}.${truncated ? " Older rows are left out." : ""}`
}

const unreachable = { type: "unreachable", status: undefined }
let lookup = 0
const show = (text, table = "", kind = "") => {
  lookup += 1
  $("uses-note").textContent = text
  $("uses-note").className = `note ${kind}`
  $("uses").replaceChildren(table)
}

/** Of another key nothing stays. */
export const forgetUses = () => show(keyOf() === "" ? "Shown when there is a key." : "")

/** Asks only while somebody looks. */
export const showUses = async () => {
  if (!$("uses-group").open || keyOf() === "") return
  const turn = ++lookup
  const response = await ask("/api/usage").catch(() => undefined)
  const problem = response?.ok ? undefined : response && (await problemOf(response))
  const uses = response?.ok ? await response.json() : undefined
  if (turn !== lookup) return
  if (uses === undefined) return show(`${explain(problem ?? unreachable).title}.`, "", "bad")
  show(usesText(uses), uses.usage.length === 0 ? "" : tableOf(uses.usage))
}

forgetUses()
$("uses-group").addEventListener("toggle", () => void showUses())
