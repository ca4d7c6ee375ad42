/** The key, and the models it may use. */
import { ask, keyOf, problemOf } from "./ask.js"
import { $, narrow, touch } from "./dom.js"
import { duration, number } from "./figures.js"
import { forgetUsage, showUsage } from "./meters.js"
import { explain } from "./problems.js"
import { forgetUses, showUses } from "./uses.js"

export const note = (text, kind = "") => {
  if ($("key-note").textContent !== text) $("key-note").textContent = text
  $("key-note").className = `note ${kind}`
}
const hint = "Yours, or the one that npm start printed. It stays in the memory of this tab."

const showKey = (shown) => {
  $("access").dataset.key = shown ? "shown" : "folded"
  $("change-key").setAttribute("aria-expanded", String(shown))
}

const noModels = (text) => {
  $("model").replaceChildren(new Option(text, ""))
  $("model").disabled = true
  $("second").replaceChildren(new Option("None", ""))
  $("second").disabled = true
  showKey(true)
}

const capabilities = new Map()
const facts = new Map()
/** Whether a model can do it: `vision`, `tools`, `thinking`. */
export const can = (what, model = $("model").value) => capabilities.get(model)?.includes(what) ?? false

const windowOf = (tokens) => (tokens < 1024 ? number(tokens) : `${Math.round(tokens / 1024)}k`)
const sizeOf = (bytes) => (bytes >= 1e9 ? `${(bytes / 1e9).toFixed(1)} GB` : `${Math.ceil(bytes / 1e6)} MB`)

/** Its parameters, its size, what it sees at once, and what it can do beside chat. */
export const factsOf = ({ details, size, capabilities: can = [] }, window) =>
  [
    details?.parameter_size,
    size > 0 ? sizeOf(size) : "",
    window > 0
      ? `window ${windowOf(window)}`
      : details?.context_length > 0
        ? `window up to ${windowOf(details.context_length)}`
        : "",
    ...["vision", "tools", "thinking"].filter((what) => can.includes(what))
  ]
    .filter(Boolean)
    .join(" · ")

/** The context windows that the gateway knows, by model. */
let windows = new Map()
export const contextOf = (model) => windows.get(model)

/** The list is worth nothing without the models, so its failure is no problem. */
const windowsOf = async () => {
  const response = await ask("/v1/models").catch(() => undefined)
  const { data = [] } = response?.ok ? await response.json() : {}
  return new Map(data.map(({ id, context_length }) => [id, context_length]))
}

let listen = () => {}
export const onModel = (listener) => {
  listen = listener
}
/** A field may be too narrow for the facts, so they are below it. */
const showFacts = (id) => {
  $(`${id}-facts`).textContent = facts.get($(id).value) ?? ""
}
const changed = () => {
  showFacts("model")
  showFacts("second")
  listen()
}

/** Says why there is nothing to choose, and offers to look again. */
const nothing = (text) => {
  note(text, "bad")
  noModels("No model")
  $("look-again").hidden = false
  changed()
}

const refused = ({ status, type, message, retryAfterS }) => {
  const { title } = explain({ status, type })
  if (status === 401) return `${title}. Is it whole? It may also be revoked or expired.`
  const wait = retryAfterS === undefined ? "" : ` Try again in ${duration(retryAfterS)}.`
  return `${title}: ${message}.${wait}`
}

const whyEmpty = (headers) =>
  headers.get("x-model-list") === "expired"
    ? "The key works, but the gateway has no current list of models: the model server has not answered for too long. Look again in a moment, or tell your operator."
    : "The key works, but no model that chats is open to it. Your operator can open one."

let lookup = 0
export const loadModels = async () => {
  const turn = ++lookup
  const key = keyOf()
  forgetUsage()
  forgetUses()
  $("look-again").hidden = true
  if (!/^[\x21-\x7e]{44}$/.test(key)) {
    note(key === "" ? hint : `A key has 44 characters; this has ${key.length}.`)
    noModels("Enter a key first")
    return changed()
  }
  noModels("Loading…")
  const response = await ask("/api/tags").catch(() => undefined)
  if (turn !== lookup) return
  if (response === undefined) return nothing("The gateway cannot be reached.")
  showUsage(response.headers)
  if (!response.ok) {
    const problem = await problemOf(response)
    if (turn === lookup) nothing(refused(problem))
    return
  }
  const { models } = await response.json()
  const scopes = response.headers.get("x-key-scopes")
  if (turn === lookup && scopes !== null && !scopes.split(", ").includes("chat"))
    return nothing(
      `This key works, but it may not chat: its scopes are ${scopes || "none"}. Ask for a key with the scope chat.`
    )
  const known = await windowsOf()
  const chatting = models.filter((model) => model.capabilities?.includes("completion") ?? true)
  if (turn !== lookup) return
  if (chatting.length === 0) return nothing(whyEmpty(response.headers))
  windows = known
  capabilities.clear()
  facts.clear()
  const before = $("model").value
  $("model").replaceChildren(
    ...chatting.map((model) => {
      capabilities.set(model.name, model.capabilities ?? [])
      facts.set(model.name, factsOf(model, contextOf(model.name)))
      return new Option(model.name, model.name, false, model.name === before)
    })
  )
  const others = [...$("model").options].map((option) => new Option(option.text, option.value))
  $("second").replaceChildren(new Option("None", ""), ...others)
  $("model").disabled = false
  $("second").disabled = others.length < 2
  const typing = document.activeElement === $("key")
  showKey(false)
  // On a narrow screen the field of an accepted key makes room for the conversation.
  if (typing && narrow.matches) (touch.matches ? $("model") : $("prompt")).focus()
  note(`Key accepted: ${chatting.length === 1 ? "one model" : `${chatting.length} models`}.`, "good")
  changed()
  void showUses()
}

let typing
note(hint)
$("key").addEventListener("input", () => {
  clearTimeout(typing)
  typing = setTimeout(loadModels, 250)
})
$("look-again").addEventListener("click", () => {
  $("key").focus()
  void loadModels()
})
$("reveal").addEventListener("click", () => {
  const shown = !$("key").classList.toggle("secret")
  $("reveal").textContent = shown ? "Hide" : "Show"
  $("reveal").setAttribute("aria-pressed", String(shown))
})
$("change-key").addEventListener("click", () => {
  const shown = $("access").dataset.key === "folded"
  showKey(shown)
  if (shown) $("key").select()
})
$("model").addEventListener("change", () => changed())
$("second").addEventListener("change", () => showFacts("second"))
