/** The models of the real server: which weights each one runs, and what its Modelfile says. */
import { weights } from "./tinyModels.ts"

export interface ModelDefinition {
  readonly weights: keyof typeof weights
  /** what makes tokens of its images */
  readonly projector?: keyof typeof weights
  readonly template?: string
  readonly system?: string
  readonly license?: string
  readonly parameters?: Readonly<Record<string, number | ReadonlyArray<string>>>
  readonly messages?: ReadonlyArray<{ readonly role: string; readonly content: string }>
}

const plainTemplate = "{{ if .System }}{{ .System }}\n{{ end }}{{ .Prompt }}<|go|>{{ .Response }}"

/** `note` stands where a model's author would write what nobody outside may read. */
const toolTemplate = (
  note: string
): string => `{{- if or .System .Tools }}<|role|>system<|msg|>{{ .System }}${note}
{{- if .Tools }}
You may call tools:
{{- range .Tools }}
{"type": "function", "function": {{ .Function }}}
{{- end }}
Answer with <tool_call>
{"name": <name>, "arguments": <args>}
</tool_call>
{{- end }}<|end|>{{ end }}
{{- $last := "" }}
{{- range $i, $_ := .Messages }}
{{- if ne .Role "system" }}<|role|>{{ .Role }}<|msg|>{{ if .Thinking }}<think>{{ .Thinking }}</think>{{ end }}{{ .Content }}
{{- if .ToolCalls }}{{ range .ToolCalls }}<tool_call>
{"name": "{{ .Function.Name }}", "arguments": {{ .Function.Arguments }}}
</tool_call>{{ end }}{{ end }}<|end|>
{{- end }}
{{- $last = .Role }}
{{- end }}<|role|>assistant<|msg|>
{{- if and .Tools (ne $last "tool") }}<|gotool|>{{ else }}<|go|>{{ end }}`

const thinkTemplate = `{{- range $i, $_ := .Messages }}<|role|>{{ .Role }}<|msg|>{{ if and .Thinking $.Think }}<think>{{ .Thinking }}</think>{{ end }}{{ .Content }}<|end|>
{{- end }}<|role|>assistant<|msg|>
{{- if and $.IsThinkSet (not $.Think) }}<|go|>{{ else }}<|gothink|>{{ end }}`

const fimTemplate =
  "{{ if .Suffix }}PRE{{ .Prompt }}SUF{{ .Suffix }}MID{{ else }}{{ .Prompt }}<|go|>{{ end }}"

const withSecrets = {
  system: "SECRET-SYSTEM: You are a private oracle.",
  license: "Tiny licence, version 0.",
  parameters: { temperature: 0.9, stop: ["<|role|>"], num_ctx: 2048 }
} as const

/** All that the weights have. An agent sends ten times as much, so the server cuts its prompt. */
const agentWindow = { num_ctx: 4096 } as const

/** By name; each is listed as `<name>:latest`. */
export const definitions = {
  /** chat, nothing else */
  plain: { weights: "tiny", template: plainTemplate },
  /** calls `get_weather` whenever it has tools, and has a system prompt that nobody may read */
  tools: { weights: "tiny", template: toolTemplate(" "), ...withSecrets },
  /** as `tools`, with a secret in its template and in its example messages too */
  tiny: {
    weights: "tiny",
    template: toolTemplate("SECRET-TEMPLATE"),
    ...withSecrets,
    messages: [
      { role: "user", content: "SECRET-EXAMPLE-QUESTION" },
      { role: "assistant", content: "SECRET-EXAMPLE-ANSWER" }
    ]
  },
  /** call the shell of the agent whose name they have */
  codex: { weights: "codex", template: toolTemplate(""), parameters: agentWindow },
  claude: { weights: "claude", template: toolTemplate(""), parameters: agentWindow },
  /** for the suites of others */
  suites: { weights: "suites", template: toolTemplate(""), parameters: { ...agentWindow, num_predict: 256 } },
  integration: {
    weights: "integration",
    template: toolTemplate(""),
    license: withSecrets.license,
    parameters: agentWindow
  },
  /** thinks before it answers, unless told not to */
  think: { weights: "tiny", template: thinkTemplate },
  /** completes between a prefix and a suffix */
  fim: { weights: "tiny", template: fimTemplate },
  /** chat, and a tokenizer that ends on long words */
  split: { weights: "split", template: plainTemplate },
  /** takes images, and sees nothing in them */
  sees: { weights: "tiny", projector: "projector", template: plainTemplate },
  /** tens of tokens a second, and never the last one */
  slow: { weights: "slow", template: plainTemplate },
  /** embeds only */
  embed: { weights: "embed" }
} as const satisfies Readonly<Record<string, ModelDefinition>>
