/** The requests on both surfaces, and how to read their answers. */
import { $, keyField } from "./elements.js"

export const surface = () => document.querySelector("input[name=surface]:checked").value
const figure = (id) => {
  const field = $(id)
  return field.value.trim() === "" || Number.isNaN(field.valueAsNumber) ? undefined : field.valueAsNumber
}
const known = (fields) =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined))

export const surfaces = {
  native: {
    path: "/api/chat",
    note: "POST /api/chat, newline-delimited JSON",
    body: (model, conversation) => {
      const options = known({
        temperature: figure("temperature"),
        top_p: figure("top-p"),
        num_predict: figure("max-tokens"),
        seed: figure("seed")
      })
      return {
        model,
        messages: conversation,
        stream: true,
        ...(Object.keys(options).length ? { options } : {})
      }
    },
    /** One line is one frame. */
    separator: "\n",
    read: (line) => {
      const frame = JSON.parse(line)
      if (frame.error !== undefined) return { problem: { message: String(frame.error) } }
      return {
        text: frame.message?.content,
        thinking: frame.message?.thinking,
        tools: frame.message?.tool_calls,
        ...(frame.done
          ? {
              ended: frame.done_reason ?? "stop",
              tokensIn: frame.prompt_eval_count,
              tokensOut: frame.eval_count
            }
          : {})
      }
    }
  },
  openai: {
    path: "/v1/chat/completions",
    note: "POST /v1/chat/completions, server-sent events",
    body: (model, conversation) => ({
      model,
      messages: conversation,
      stream: true,
      ...known({
        temperature: figure("temperature"),
        top_p: figure("top-p"),
        max_completion_tokens: figure("max-tokens"),
        seed: figure("seed")
      })
    }),
    /** One event ends with a blank line. */
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
        tools: choice?.delta?.tool_calls,
        ...(choice?.finish_reason ? { ended: choice.finish_reason } : {}),
        ...(chunk.usage
          ? { tokensIn: chunk.usage.prompt_tokens, tokensOut: chunk.usage.completion_tokens }
          : {})
      }
    }
  }
}

export const ask = (path, options = {}) =>
  fetch(path, {
    ...options,
    headers: { ...options.headers, authorization: `Bearer ${keyField.value.trim()}` },
    credentials: "omit",
    cache: "no-store",
    redirect: "error",
    referrerPolicy: "no-referrer"
  })

/** The error message of a response, of any form. */
export const problemOf = async (response) => {
  const text = await response.text().catch(() => "")
  let body
  try {
    body = JSON.parse(text)
  } catch {
    body = undefined
  }
  return {
    status: response.status,
    type: body?.error?.type ?? "error",
    message: body?.error?.message ?? (text.slice(0, 300) || response.statusText),
    requestId: response.headers.get("x-request-id") ?? body?.request_id,
    retryAfterS: Number(response.headers.get("retry-after")) || undefined
  }
}
