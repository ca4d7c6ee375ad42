/** The conversation: what was said, and what can be done with each turn. */
import { announce } from "./announce.js"
import { runAnswer } from "./answer.js"
import { $, all, atEnd, element, icon, narrow, toEnd, touch, withAttributes } from "./dom.js"
import { format, invalidField, tools } from "./extras.js"
import { takeImages } from "./images.js"
import { can, note } from "./models.js"
import { options, reasoning, surface } from "./parameters.js"
import { problemBox } from "./problemBox.js"
import { refreshUsage, whatCut } from "./meters.js"
import { openSettings } from "./sheet.js"
import { surfaces } from "./surfaces.js"
import { showUses } from "./uses.js"
import {
  answerActs,
  callsBox,
  continueActs,
  editor,
  factsLine,
  otherActs,
  toolTurn,
  userTurn
} from "./turns.js"

const emptyState = $("empty")
let turns = []
/** Ends the running answer; undefined when there is none. */
let running

export const conversation = () => turns

/** What of a turn is sent. */
const sent = ["role", "content", "images", "calls", "name", "callId"]

/** The request that the page would send with these turns. */
export const requestOf = (asked, model = $("model").value) => ({
  model: model || "<model>",
  system: $("system").value.trim(),
  turns: asked.map((turn) => Object.fromEntries(sent.map((name) => [name, turn[name]]))),
  options: options(),
  format: format(),
  tools: tools(),
  reasoning: model === "" || can("thinking", model) ? reasoning() : ""
})

export const usedBytes = () => JSON.stringify(surfaces[surface()].body(requestOf(turns))).length

/** Off without an accepted key. */
const switchSend = () => {
  $("send").disabled = running === undefined && $("model").disabled
}
new MutationObserver(switchSend).observe($("model"), { attributeFilter: ["disabled"] })
switchSend()

const busy = (yes) => {
  $("log").setAttribute("aria-busy", String(yes))
  for (const change of all("#log .acts .change")) change.disabled = yes
  const label = yes ? "Stop" : "Send"
  withAttributes($("send"), { "aria-label": label, title: label })
  $("send").classList.toggle("stop", yes)
  $("send").replaceChildren(icon(yes ? "stop" : "send"))
  switchSend()
}

/** The keyboard of a phone comes up only when the reader wants to type. */
const focusPrompt = () => (touch.matches ? $("log") : $("prompt")).focus()

const forget = (gone) => {
  for (const { node } of gone) node.remove()
  turns = turns.filter((turn) => !gone.includes(turn))
  if (turns.length === 0) $("log").replaceChildren(emptyState)
}

const from = (turn) => turns.slice(turns.indexOf(turn))

const remove = (turn) => {
  const index = turns.indexOf(turn)
  const results = from(turn)
    .slice(1)
    .findIndex(({ role }) => role !== "tool")
  const more = turn.calls?.length ? from(turn).slice(1, results === -1 ? undefined : results + 1) : []
  forget([turn, ...more])
  announce("Deleted.")
  const neighbour = (turns[index] ?? turns[index - 1])?.node.querySelector(".acts button:last-child")
  if (neighbour) neighbour.focus()
  else focusPrompt()
}

const again = (turn) => {
  forget(from(turn))
  focusPrompt()
  void answer()
}

/** `nodeOf` makes the node of a turn. */
const add = (turn, nodeOf) => {
  turn.node = nodeOf(turn, { edit, remove })
  emptyState.remove()
  turns.push(turn)
  $("log").append(turn.node)
}

const addUser = (content, images) => add({ role: "user", content, images }, userTurn)

const edit = (turn) => {
  const { node, field } = editor(turn, {
    send: (content) => {
      const images = turn.images
      forget(from(turn))
      addUser(content, images)
      focusPrompt()
      void answer()
    },
    cancel: () => {
      turn.node.classList.remove("editing")
      node.remove()
      turn.node.querySelector(".acts button:nth-child(2)").focus()
    }
  })
  turn.node.classList.add("editing")
  turn.node.append(node)
  field.focus()
}

const sendResults = (turn) => (results) => {
  if (running !== undefined) return
  forget(from(turn).slice(1))
  for (const [index, content] of results.entries()) {
    const { id, name } = turn.calls[index]
    add({ role: "tool", content, name, callId: id }, toolTurn)
  }
  focusPrompt()
  void answer()
}

/** Asks one model, and shows below its answer what there is to say of it. `begun`: the answer that it goes on with. */
const askModel = async (model, asked, into, signal, retry, begun) => {
  const adapter = surfaces[surface()]
  const request = requestOf(begun === undefined ? asked : [...asked, begun], model)
  const asJson = request.format.mode !== "text"
  const body = adapter.body(request)
  const got = await runAnswer({ adapter, body, asJson, model, signal, into, begun })
  const { node, content, thinking, calls, problem } = got
  const follow = atEnd() || problem !== undefined
  node.classList.remove("running")
  if (problem !== undefined) node.append(problemBox(problem, retry))
  for (const warning of got.warnings ?? []) node.append(element("p", "note warning", warning))
  const end = element("div", "end")
  node.append(end)
  if (follow) toEnd()
  await refreshUsage()
  void showUses()
  if (problem === undefined)
    end.append(factsLine({ ...got, cutBy: got.ended === "length" ? whatCut() : undefined }))
  // The line of the limits may have become higher, and the box of an error is read above it.
  if (follow) toEnd()
  return { role: "assistant", model, content, thinking, calls, node, end, ended: got.ended }
}

/** `begun`: the answer that the model goes on with. */
const answer = async (begun = undefined) => {
  const stop = new AbortController()
  running = stop
  busy(true)
  const thread = turns
  const asked = [...turns]
  const other = $("second").value
  const into = other === "" ? $("log") : element("div", "beside")
  if (other !== "") $("log").append(into)
  /** @type {any} */
  let turn
  const restart = (next) => {
    if (running !== undefined) return
    for (const { node } of made) node.remove()
    if (other !== "") into.remove()
    forget(turns.includes(turn) ? from(turn) : [])
    focusPrompt()
    void answer(next)
  }
  const ask = (model, told, begun = undefined) =>
    askModel(model, told, into, stop.signal, () => restart(begun), begun)
  const made = [await ask($("model").value, asked, begun)]
  // One after the other: neither takes the time of the model server from the other, and a key needs one place only.
  // It is told its own answers, where it gave some.
  const told = asked.map((turn) => turn.beside ?? turn)
  if (other !== "" && !stop.signal.aborted) made.push(await ask(other, told))
  // A new chat may have begun before this answer ended.
  if (turns !== thread) return made.forEach(({ node }) => node.remove())
  const follow = atEnd()
  const [first, beside] = made.filter(({ content, calls }) => content !== "" || calls.length > 0)
  if (first !== undefined) {
    turn = { ...first, node: other === "" ? first.node : into }
    // Results go to the calls of one model, so from then on both are told the same.
    if (beside !== undefined && first.calls.length + beside.calls.length === 0) turn.beside = beside
    turns.push(turn)
    if (first.calls.length > 0) first.end.before(callsBox(first.calls, sendResults(turn)))
    first.end.prepend(answerActs(turn, { again, remove }))
  }
  if (beside !== undefined) beside.end.prepend(otherActs(beside))
  const [only, ...others] = made
  if (others.length === 0 && only.calls.length === 0 && ["stopped", "length"].includes(only.ended))
    only.end.prepend(continueActs(() => restart(turn)))
  if (follow) toEnd()
  running = undefined
  busy(false)
}

export const fit = () => {
  $("prompt").style.height = "auto"
  $("prompt").style.height = `${$("prompt").scrollHeight + 2}px`
}

/** A field that has to be right first is shown and focused. */
const missing = () => {
  if ($("model").value === "") {
    if ($("key").value.trim() === "") note("A key comes first.", "bad")
    return $("key")
  }
  const field = invalidField()
  if (field === undefined) return undefined
  openSettings()
  field.closest("details").open = true
  return field
}

export const send = () => {
  const text = $("prompt").value.trim()
  if (running !== undefined) return
  const field = missing()
  if (field !== undefined) return field.focus()
  const images = takeImages()
  if (text === "" && images.length === 0) return $("prompt").focus()
  addUser(text, images)
  $("prompt").value = ""
  fit()
  if (narrow.matches && touch.matches) $("prompt").blur()
  void answer()
}

export const stop = () => running?.abort()
export const sendOrStop = () => {
  if (running === undefined) send()
  else stop()
  if (!touch.matches) $("prompt").focus()
}

export const newChat = () => {
  stop()
  running = undefined
  busy(false)
  turns = []
  takeImages()
  $("live").textContent = ""
  $("log").replaceChildren(emptyState)
  announce("New chat.")
  focusPrompt()
}
