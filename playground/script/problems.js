/** Errors of the gateway in plain words, with what to do. */

const words = {
  invalid_request: ["The request was not accepted", "Change what the message names, then try again."],
  unauthorized: [
    "The gateway does not accept this key",
    "Check that the whole key was pasted. A key that was revoked, disabled or has expired is refused the same way: ask whoever gave it to you for a new one."
  ],
  forbidden: [
    "This key may not do that",
    "The key may lack the scope for chat, or the model is not open to it any more. Choose another model, or ask for access."
  ],
  payload_too_large: [
    "The conversation is too large to send",
    "Remove an image, delete earlier turns, or start a new chat."
  ],
  rate_limit_exceeded: ["Too many requests this minute", "Wait until the limit lets the next one in."],
  token_limit_exceeded: [
    "Too many tokens this minute",
    "Wait, or ask for less: a lower bound on tokens, or a shorter conversation."
  ],
  concurrency_limit_exceeded: [
    "Too many answers at the same time",
    "Wait until another answer of this key has ended."
  ],
  budget_exceeded: [
    "The token budget is spent",
    "It starts again when its period does. Your operator can raise it before."
  ],
  budget_held: [
    "Running requests hold the rest of the budget",
    "They give back what they do not use. Wait until one of them has ended."
  ],
  capacity_exceeded: [
    "The model server is busy, and the queue is full",
    "Try again in a moment: nothing was charged."
  ],
  bad_gateway: [
    "The model server does not answer",
    "It may be starting, overloaded or down. Try again in a moment; if it stays so, tell your operator."
  ],
  service_unavailable: [
    "The gateway cannot decide right now",
    "Its database or counters do not answer, so it refuses everything. Try again in a moment."
  ],
  internal_error: [
    "The gateway made a mistake",
    "Try again. If it happens again, send the request id to your operator."
  ],
  unreachable: ["The gateway cannot be reached", "Check the network, and that the gateway is running."],
  incomplete: [
    "The answer broke off",
    "The connection ended early. What arrived is kept above; try again for a whole answer."
  ]
}

const byStatus = { 400: "invalid_request", 401: "unauthorized", 403: "forbidden", 413: "payload_too_large" }

export const explain = ({ type, status, message = "" }) => {
  const held = type === "budget_exceeded" && message.includes("held by requests that run")
  const [title, advice] =
    words[held ? "budget_held" : type] ??
    words[byStatus[status]] ??
    (status >= 500 ? words.internal_error : status === 429 ? words.rate_limit_exceeded : words.incomplete)
  return { title, advice }
}
