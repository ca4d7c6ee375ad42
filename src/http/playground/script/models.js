/** The key, and the models it may use. */
import { element, keyField, keyNote, modelField } from "./elements.js"
import { forgetHeadroom, showHeadroom } from "./headroom.js"
import { ask, problemOf } from "./surfaces.js"

export const note = (text, kind) => {
  keyNote.textContent = text
  keyNote.className = kind ? `note ${kind}` : "note"
}
const inMemory = "Stays in this tab's memory: never stored, never in the address."

const noModels = (text) => {
  const option = element("option", "", text)
  option.value = ""
  modelField.replaceChildren(option)
  modelField.disabled = true
}

let lookup = 0
export const loadModels = async () => {
  const turn = ++lookup
  const key = keyField.value.trim()
  forgetHeadroom()
  if (key === "") {
    note(inMemory)
    return noModels("Enter a key first")
  }
  if (!/^[\x21-\x7e]{44}$/.test(key)) {
    note("A key has 44 characters.", "")
    return noModels("Enter a key first")
  }
  noModels("Loading…")
  const response = await ask("/api/tags").catch(() => undefined)
  if (turn !== lookup) return
  if (response === undefined) {
    note("The gateway cannot be reached.", "bad")
    return noModels("–")
  }
  showHeadroom(response.headers)
  if (!response.ok) {
    const problem = await problemOf(response)
    if (turn !== lookup) return
    note(
      problem.status === 401 ? "The gateway does not know this key." : `${problem.status} ${problem.message}`,
      "bad"
    )
    return noModels("–")
  }
  const { models } = await response.json()
  if (turn !== lookup) return
  const chatting = models.filter(
    ({ capabilities }) => capabilities === undefined || capabilities.includes("completion")
  )
  if (chatting.length === 0) {
    note("The key works, but no model that chats is open to it.", "bad")
    return noModels("No chat models")
  }
  const before = modelField.value
  modelField.replaceChildren(
    ...chatting.map(({ name }) => {
      const option = element("option", "", name)
      option.value = name
      option.selected = name === before
      return option
    })
  )
  modelField.disabled = false
  note(
    `Key accepted: ${chatting.length === 1 ? "one model" : `${chatting.length} models`}. Kept in memory only.`,
    "good"
  )
}
