/** What the user of each agent sees of a refusal, in a run without a terminal. */
import { clients } from "../../cli/connect/clients.ts"
import type { AgentName } from "./runAgent.ts"

export const refusals = ["401", "403", "413", "429, a budget is spent", "502", "503"] as const
export type Refusal = (typeof refusals)[number]

/** It asks again, and shows nothing meanwhile. */
export const asksAgain = "asks again"

const unavailable = "service temporarily unavailable"
const failed = "model backend unavailable"
const spent = "total budget of 1 token is spent"
const tooLarge = "request body is larger than 2048 bytes"

/** A part of what it prints, word for word, or `asksAgain`. */
export const shown: Readonly<Record<AgentName, Readonly<Record<Refusal, string>>>> = {
  codex: {
    "401": "unexpected status 401 Unauthorized: unauthorized",
    "403": "unexpected status 403 Forbidden: forbidden",
    "413": `unexpected status 413 Payload Too Large: ${tooLarge}`,
    "429, a budget is spent": asksAgain,
    "502": `unexpected status 502 Bad Gateway: ${failed}`,
    "503": `unexpected status 503 Service Unavailable: ${unavailable}`
  },
  claude: {
    "401": "Failed to authenticate. API Error: 401 unauthorized",
    "403": "Failed to authenticate. API Error: 403 forbidden",
    "413": "Request too large (max 32MB)",
    "429, a budget is spent": `Request rejected (429) · ${spent}`,
    "502": asksAgain,
    "503": asksAgain
  },
  copilot: {
    "401": "Check your COPILOT_PROVIDER_API_KEY",
    "403": "Check your COPILOT_PROVIDER_API_KEY",
    "413": "The provider rejected the prompt as too long",
    "429, a budget is spent": `429 ${spent}`,
    "502": `Last error: 502 ${failed}`,
    "503": `Last error: 503 ${unavailable}`
  },
  opencode: {
    "401": "Error: unauthorized",
    "403": "Error: forbidden",
    "413": `Error: ${tooLarge}`,
    "429, a budget is spent": asksAgain,
    "502": `Error: ${failed}`,
    "503": `Error: ${unavailable}`
  },
  qwen: {
    "401": "[API Error: 401 unauthorized]",
    "403": "[API Error: 403 forbidden]",
    "413": "Model request exceeds the endpoint request-body limit (HTTP 413)",
    "429, a budget is spent": asksAgain,
    "502": asksAgain,
    "503": asksAgain
  },
  pi: {
    "401": "401 unauthorized",
    "403": "403 forbidden",
    "413": `413 ${tooLarge}`,
    "429, a budget is spent": `429 ${spent}`,
    "502": `502 ${failed}`,
    "503": `503 ${unavailable}`
  },
  cline: {
    "401": "error: unauthorized",
    "403": "error: forbidden",
    "413": `error: ${tooLarge}`,
    "429, a budget is spent": `error: ${spent}`,
    "502": `error: ${failed}`,
    "503": `error: ${unavailable}`
  },
  continue: {
    "401": "401 unauthorized",
    "403": "403 forbidden",
    "413": `413 ${tooLarge}`,
    "429, a budget is spent": asksAgain,
    "502": asksAgain,
    "503": asksAgain
  }
}

const cell = (words: string): string => (words === asksAgain ? words : `\`${words}\``)

/** The table of the guide. */
export const tableOfRefusals = (names: ReadonlyArray<AgentName>): string =>
  [
    `| Client | ${refusals.join(" | ")} |`,
    `|---|${"---|".repeat(refusals.length)}`,
    ...names.map((name) => {
      const title = clients.find((one) => one.name === name)?.title ?? name
      return `| ${title} | ${refusals.map((refusal) => cell(shown[name][refusal])).join(" | ")} |`
    })
  ].join("\n")
