/** The format of the answer, and the tools that the model may call. */
import { $ } from "./dom.js"

const exampleSchema = {
  type: "object",
  properties: { title: { type: "string" }, steps: { type: "array", items: { type: "string" } } },
  required: ["title", "steps"]
}
const exampleTools = [
  {
    type: "function",
    function: {
      name: "get_weather",
      description: "The weather of a city right now",
      parameters: {
        type: "object",
        properties: { city: { type: "string" } },
        required: ["city"]
      }
    }
  }
]

const read = (field, note, accepts, wanted) => {
  const text = field.value.trim()
  let value
  let wrong = ""
  if (text !== "") {
    try {
      value = JSON.parse(text)
      if (!accepts(value)) wrong = `It is JSON, but not ${wanted}.`
    } catch (error) {
      wrong = `This is not JSON yet: ${error.message}`
    }
  }
  if (note.textContent !== wrong) note.textContent = wrong
  note.className = wrong === "" ? "note" : "note bad"
  field.setAttribute("aria-invalid", String(wrong !== ""))
  return wrong === "" ? value : undefined
}

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value)
const isTools = (value) =>
  Array.isArray(value) && value.every((entry) => isObject(entry) && typeof entry.function?.name === "string")

const schema = () => read($("schema"), $("schema-note"), isObject, "a schema: an object is expected")
export const tools = () => {
  const given = read($("tools"), $("tools-note"), isTools, "a list of functions")
  return given?.length ? given : undefined
}

export const format = () => {
  const mode = $("format").value
  return mode === "schema" ? { mode, schema: schema() ?? {} } : { mode }
}

/** What is wrong with the fields, or undefined; its field is returned so that it can be focused. */
export const invalidField = () => {
  format()
  tools()
  return [$("schema"), $("tools")].find(
    (field) =>
      field.getAttribute("aria-invalid") === "true" &&
      (field.id === "tools" || $("format").value === "schema")
  )
}

const show = () => {
  const mode = $("format").value
  $("schema-field").hidden = mode !== "schema"
  $("format-count").textContent = mode === "text" ? "" : mode === "json" ? "JSON" : "schema"
  if (mode === "schema" && $("schema").value === "")
    $("schema").value = JSON.stringify(exampleSchema, undefined, 2)
  const given = tools()
  $("tools-count").textContent = given === undefined ? "" : `${given.length} set`
  format()
}

for (const id of ["format", "schema", "tools"]) $(id).addEventListener("input", show)
$("tools-example").addEventListener("click", () => {
  $("tools").value = JSON.stringify(exampleTools, undefined, 2)
  show()
})
