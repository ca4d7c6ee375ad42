/** Requests to the gateway that serves this page. */
import { $ } from "./dom.js"

export const keyOf = () => $("key").value.trim()

export const ask = (path, options = {}) =>
  fetch(path, {
    ...options,
    headers: { ...options.headers, authorization: `Bearer ${keyOf()}` },
    credentials: "omit",
    cache: "no-store",
    redirect: "error",
    referrerPolicy: "no-referrer"
  })

const parsed = (text) => {
  try {
    return JSON.parse(text)
  } catch {
    // An answer that is not JSON has no parts to read.
    return undefined
  }
}

/** The error of a response, of any form. */
export const problemOf = async (response) => {
  const text = await response.text().catch(() => "")
  const body = parsed(text)
  return {
    status: response.status,
    type: body?.error?.type,
    hint: response.headers.get("x-hint") ?? undefined,
    message: body?.error?.message ?? (text.slice(0, 300) || response.statusText),
    requestId: response.headers.get("x-request-id") ?? body?.request_id,
    retryAfterS: Number(response.headers.get("retry-after")) || undefined
  }
}
