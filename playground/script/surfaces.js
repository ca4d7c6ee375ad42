/** The chat request on both surfaces, and how to read its answer. Works on plain values, without the page. */

const present = (fields) =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined))

const base64Of = (dataUrl) => dataUrl.slice(dataUrl.indexOf(",") + 1)
const system = ({ system }) => (system === "" ? [] : [{ role: "system", content: system }])

const nativeMessage = ({ role, content, images, calls, name, callId }) =>
  present({
    role,
    content,
    images: images?.length ? images.map(base64Of) : undefined,
    tool_calls: calls?.length
      ? calls.map((call) => ({ function: { name: call.name, arguments: call.arguments } }))
      : undefined,
    tool_name: name,
    tool_call_id: callId
  })

const openaiMessage = ({ role, content, images, calls, callId }) =>
  present({
    role,
    content: images?.length
      ? [
          ...(content === "" ? [] : [{ type: "text", text: content }]),
          ...images.map((url) => ({ type: "image_url", image_url: { url } }))
        ]
      : content,
    tool_calls: calls?.length
      ? calls.map(({ id, name, arguments: given }) => ({
          id,
          type: "function",
          function: { name, arguments: JSON.stringify(given) }
        }))
      : undefined,
    tool_call_id: callId
  })

const effort = { off: "none", on: "medium" }
const think = { off: false, on: true }

const responseFormat = ({ mode, schema }) =>
  ({
    json: { type: "json_object" },
    schema: { type: "json_schema", json_schema: { name: "answer", strict: true, schema } }
  })[mode]

const asObject = (value) => {
  if (typeof value !== "string") return value ?? {}
  try {
    return JSON.parse(value === "" ? "{}" : value)
  } catch {
    // Arguments that are no JSON are shown as they came.
    return value
  }
}

const callOf = ({ id, function: called }) => ({
  id,
  name: called?.name,
  arguments: asObject(called?.arguments)
})

export const surfaces = {
  native: {
    path: "/api/chat",
    note: "POST /api/chat, one JSON object a line",
    body: (request) =>
      present({
        model: request.model,
        messages: [...system(request), ...request.turns.map(nativeMessage)],
        stream: true,
        format: { json: "json", schema: request.format.schema }[request.format.mode],
        tools: request.tools,
        think: think[request.reasoning] ?? (request.reasoning || undefined),
        options: Object.keys(request.options).length > 0 ? request.options : undefined
      }),
    separator: "\n",
    read: (line) => {
      const frame = JSON.parse(line)
      if (frame.error !== undefined) return { problem: { message: String(frame.error) } }
      return {
        text: frame.message?.content,
        thinking: frame.message?.thinking,
        calls: frame.message?.tool_calls?.map(callOf),
        ended: frame.done ? (frame.done_reason ?? "stop") : undefined,
        tokensIn: frame.prompt_eval_count,
        tokensOut: frame.eval_count
      }
    }
  },
  openai: {
    path: "/v1/chat/completions",
    note: "POST /v1/chat/completions, server-sent events",
    body: (request) =>
      present({
        model: request.model,
        messages: [...system(request), ...request.turns.map(openaiMessage)],
        stream: true,
        response_format: responseFormat(request.format),
        tools: request.tools,
        reasoning_effort: effort[request.reasoning] ?? (request.reasoning || undefined),
        ...request.options
      }),
    separator: "\n\n",
    read: (event) => {
      const data = event.startsWith("data:") ? event.slice(5).trim() : ""
      if (data === "" || data === "[DONE]") return {}
      const chunk = JSON.parse(data)
      if (chunk.error !== undefined) return { problem: chunk.error }
      const choice = chunk.choices?.[0]
      return {
        text: choice?.delta?.content,
        thinking: choice?.delta?.reasoning,
        calls: choice?.delta?.tool_calls?.map(callOf),
        ended: choice?.finish_reason,
        tokensIn: chunk.usage?.prompt_tokens,
        tokensOut: chunk.usage?.completion_tokens
      }
    }
  }
}

/** The frames of a response body, as they come. */
export async function* framesOf(response, { separator, read }) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader()
  let rest = ""
  for (;;) {
    const { done, value } = await reader.read()
    const parts = (rest + (value ?? "")).split(separator)
    rest = done ? "" : parts.pop()
    yield parts.filter((part) => part.trim() !== "").map(read)
    if (done) return
  }
}
