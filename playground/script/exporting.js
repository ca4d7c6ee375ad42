/** The conversation as a file. */
import { conversation, requestOf } from "./conversation.js"
import { $, element } from "./dom.js"

const titles = { user: "You", assistant: "Assistant" }

export const markdownOf = ({ model, system, turns }) => {
  const parts = [`# Conversation with ${model}`]
  if (system !== "") parts.push(`## System\n\n${system}`)
  for (const { role, content, images, calls, name } of turns) {
    const title = role === "tool" ? `Result of ${name}` : titles[role]
    const extra = [
      ...(images?.length ? [`*${images.length === 1 ? "one image" : `${images.length} images`}*`] : []),
      ...(calls ?? []).map(
        (call) =>
          `Calls \`${call.name}\`:\n\n\`\`\`json\n${JSON.stringify(call.arguments, undefined, 2)}\n\`\`\``
      )
    ]
    parts.push([`## ${title}`, content, ...extra].filter((text) => text !== "").join("\n\n"))
  }
  return `${parts.join("\n\n")}\n`
}

const save = (ending, type, text) => {
  const link = element("a")
  link.href = URL.createObjectURL(new Blob([text], { type }))
  link.download = `conversation-${new Date().toISOString().slice(0, 16).replaceAll(":", "")}.${ending}`
  link.click()
  setTimeout(() => URL.revokeObjectURL(link.href), 1000)
}

$("export-markdown").addEventListener("click", () =>
  save("md", "text/markdown", markdownOf(requestOf(conversation())))
)
$("export-json").addEventListener("click", () =>
  save("json", "application/json", `${JSON.stringify(requestOf(conversation()), undefined, 2)}\n`)
)
