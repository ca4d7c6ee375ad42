/** How the turns of a conversation look. */
import { copyButton, copyText } from "./copy.js"
import { button, element, withAttributes } from "./dom.js"
import { number, span } from "./figures.js"
import { thumbnail } from "./images.js"

/** It changes the conversation, so it waits for the end of an answer (`busy`). */
const act = (label, name, press) => button({ label, name, className: "quiet only change", press })

const article = (name, title, ...parts) => element("article", `column turn ${name}`, title, ...parts)
const acts = (...parts) => element("div", "acts", ...parts)
const who = (title) => element("h3", "who", title)

export const userTurn = (turn, { edit, remove }) => {
  const bubble = element("div", "bubble")
  if (turn.images?.length) {
    const pictures = turn.images.map((url, index) => thumbnail(url, `Image ${index + 1} of this message`))
    bubble.append(element("div", "pictures", ...pictures))
  }
  if (turn.content !== "") bubble.append(element("div", "text", turn.content))
  const under = acts(
    copyButton("Copy message", () => turn.content),
    act("Edit and send again", "edit", () => edit(turn)),
    act("Delete this message", "delete", () => remove(turn))
  )
  return article("user", element("h3", "unseen", "You"), bubble, under)
}

export const assistantTurn = (model) => article("assistant running", who(model))

export const toolTurn = (turn, { remove }) =>
  article(
    "tool",
    who(`Result of ${turn.name}`),
    withAttributes(element("pre", "sunken", turn.content), { tabindex: "0" }),
    acts(act("Delete this result", "delete", () => remove(turn)))
  )

export const waitingLine = () =>
  element("p", "line waiting", element("i"), element("i"), element("i"), element("span"))

export const reasoningBox = () => {
  const text = document.createTextNode("")
  const made = element(
    "details",
    "reasoning",
    element("summary", "line", "Reasoning…"),
    element("div", "text", text)
  )
  return { node: made, text, title: (words) => (made.firstChild.textContent = words) }
}

/** What the model wants to have called; the results go back with one button. */
export const callsBox = (calls, answer) => {
  const box = element("div", "column calls")
  const inputs = calls.map((call) => {
    const given =
      typeof call.arguments === "string" ? call.arguments : JSON.stringify(call.arguments, undefined, 2)
    const code = withAttributes(element("pre", "sunken", given), { tabindex: "0" })
    const placeholder = 'What it gave, such as {"temperature": 21}'
    const result = withAttributes(element("textarea", "mono"), { rows: 2, placeholder, autocomplete: "off" })
    box.append(
      element(
        "div",
        "column call",
        element("p", "", "Calls ", element("code", "", call.name)),
        code,
        element("label", "", `Result of ${call.name}`, result)
      )
    )
    return result
  })
  const send = button({
    word: calls.length === 1 ? "Send the result" : "Send the results",
    press: () => {
      box.classList.add("answered")
      answer(inputs.map(({ value }) => value))
    }
  })
  box.append(send)
  return box
}

/** What can be done with the answer of the second model; the turn is that of the first. */
export const otherActs = ({ content, calls }) =>
  acts(
    ...(content === "" ? [] : [copyButton("Copy answer", () => content)]),
    ...calls.map(({ name }) => element("p", "note", `Calls ${name}, which gets no result here.`))
  )

export const answerActs = (turn, { again, remove }) =>
  acts(
    ...(turn.content === "" ? [] : [copyButton("Copy answer", () => turn.content)]),
    act("Answer again", "again", () => again(turn)),
    act("Delete this answer", "delete", () => remove(turn))
  )

/** The way on from an answer that was stopped or cut. */
export const continueActs = (goOn) =>
  element("div", "acts go-on", button({ word: "Continue", className: "quiet change", press: goOn }))

const endings = { stopped: "stopped", tool_calls: "waits for results" }

export const factsLine = (got) => {
  const { tokensIn, firstMs, allMs, ended, cutBy, queuedMs, requestId } = got
  const out = got.tokensOut ?? got.pieces
  const facts = element("p", "line facts")
  const add = (text) => facts.append(element("span", "", text))
  add(
    tokensIn === undefined ? `about ${number(out)} tokens out` : `${number(tokensIn)} in, ${number(out)} out`
  )
  const spokeS = (allMs - (firstMs ?? allMs)) / 1000
  if (spokeS > 0.05 && out > 1) add(`${(out / spokeS).toFixed(0)} tokens/s`)
  if (firstMs !== undefined) add(`first token ${span(firstMs)}`)
  add(`${span(allMs)} in all`)
  if (queuedMs >= 1) add(`${span(queuedMs)} of it in the queue`)
  if (ended !== undefined && ended !== "stop") add(cutBy ?? endings[ended] ?? ended)
  if (requestId) {
    const copy = button({
      word: `id ${requestId.slice(0, 8)}…`,
      label: `Copy request id ${requestId}`,
      className: "id dotted",
      press: (pressed) => void copyText(pressed, requestId, "Request id copied")
    })
    facts.append(copy)
  }
  return facts
}

/** The fields with which a message is changed and sent again. */
export const editor = (turn, { send, cancel }) => {
  const field = element("textarea", "edit")
  Object.assign(field, { value: turn.content, rows: Math.min(10, turn.content.split("\n").length + 1) })
  field.setAttribute("aria-label", "Change the message")
  const done = () => field.value.trim() !== "" && send(field.value.trim())
  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      event.stopPropagation()
      cancel()
    } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault()
      done()
    }
  })
  const row = element(
    "div",
    "line row",
    button({ word: "Cancel", press: cancel }),
    button({ word: "Send", className: "primary", press: done })
  )
  return { node: element("div", "column editor", field, row), field }
}
