/**
 * The clients of `connect`. Each was run as it stands here where it has `tried`; the others follow the documents of their makers.
 */
import { type Client, compactAt } from "./Client.ts"

const folder = "~/.config/tollgate"

export const clients: ReadonlyArray<Client> = [
  {
    name: "codex",
    title: "Codex CLI",
    surface: "responses",
    firstRequest: 10_000,
    tried: { version: "0.169.0", did: "writes a file by its tool" },
    settings: (facts) => ({
      "~/.codex/tollgate.config.toml": `model = ${JSON.stringify(facts.model)}
model_provider = "tollgate"
model_context_window = ${facts.window}
model_auto_compact_token_limit = ${compactAt(facts)}
web_search = "disabled"

[model_providers.tollgate]
name = "Tollgate"
base_url = "${facts.url}/v1"
env_key = "TOLLGATE_KEY"
wire_api = "responses"
`
    }),
    run: () => "codex --profile tollgate",
    notes: [
      "Codex sends no output bound, so an answer may be as long as `NUM_PREDICT_CAP` allows.",
      "Codex asks six times after a 403 or a 429, and then shows the status only. The text of a 429 is in `tollgate requests`.",
      "When a budget ends an answer, Codex shows what came, and `Incomplete response returned, reason: max_output_tokens`."
    ]
  },
  {
    name: "claude",
    title: "Claude Code",
    surface: "messages",
    firstRequest: 12_000,
    tried: { version: "2.1.330", did: "writes a file by its tool" },
    environment: ({ model, output, url, window }) => ({
      ANTHROPIC_BASE_URL: url,
      ANTHROPIC_AUTH_TOKEN: "$TOLLGATE_KEY",
      ANTHROPIC_MODEL: model,
      ANTHROPIC_DEFAULT_OPUS_MODEL: model,
      ANTHROPIC_DEFAULT_SONNET_MODEL: model,
      ANTHROPIC_DEFAULT_HAIKU_MODEL: model,
      CLAUDE_CODE_MAX_OUTPUT_TOKENS: String(output),
      CLAUDE_CODE_MAX_CONTEXT_TOKENS: String(window),
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1"
    }),
    run: () => "claude",
    notes: [
      "Without `CLAUDE_CODE_MAX_CONTEXT_TOKENS` Claude Code assumes a window of 1,000,000 tokens for an unknown model, and never shortens a conversation. `CLAUDE_CODE_AUTO_COMPACT_WINDOW` does not help: it takes no window below 100,000.",
      "Claude Code shows a 403 as `Failed to authenticate`, also when the surface is off."
    ]
  },
  {
    name: "copilot",
    title: "GitHub Copilot CLI",
    surface: "chat",
    firstRequest: 12_000,
    tried: { version: "1.0.102", did: "writes a file by its tool" },
    environment: ({ model, output, url, window }) => ({
      COPILOT_PROVIDER_BASE_URL: `${url}/v1`,
      COPILOT_PROVIDER_TYPE: "openai",
      COPILOT_PROVIDER_WIRE_API: "completions",
      COPILOT_PROVIDER_BEARER_TOKEN: "$TOLLGATE_KEY",
      COPILOT_MODEL: model,
      COPILOT_PROVIDER_MAX_PROMPT_TOKENS: String(window - output),
      COPILOT_PROVIDER_MAX_OUTPUT_TOKENS: String(output),
      COPILOT_OFFLINE: "true"
    }),
    run: () => "copilot",
    notes: ["Copilot shortens a conversation near `COPILOT_PROVIDER_MAX_PROMPT_TOKENS`."]
  },
  {
    name: "opencode",
    title: "opencode",
    surface: "chat",
    firstRequest: 8_000,
    tried: { version: "1.18.33", did: "writes a file by its tool" },
    environment: () => ({ OPENCODE_CONFIG: `${folder}/opencode.json` }),
    settings: ({ model, output, url, window }) => ({
      [`${folder}/opencode.json`]: {
        $schema: "https://opencode.ai/config.json",
        model: `tollgate/${model}`,
        small_model: `tollgate/${model}`,
        provider: {
          tollgate: {
            npm: "@ai-sdk/openai-compatible",
            name: "Tollgate",
            options: { baseURL: `${url}/v1`, apiKey: "{env:TOLLGATE_KEY}" },
            models: { [model]: { name: model, tool_call: true, limit: { context: window, output } } }
          }
        }
      }
    }),
    run: () => "opencode",
    notes: [
      "opencode shortens a conversation at `limit.context` minus `limit.output`.",
      "opencode starts two requests at once: the turn, and a title for it."
    ]
  },
  {
    name: "qwen",
    title: "Qwen Code",
    surface: "chat",
    firstRequest: 20_000,
    tried: { version: "0.24.4", did: "writes a file by its tool" },
    environment: () => ({ QWEN_CODE_SYSTEM_SETTINGS_PATH: `${folder}/qwen.json` }),
    settings: ({ model, output, url, window }) => ({
      [`${folder}/qwen.json`]: {
        security: { auth: { selectedType: "openai" } },
        model: { name: model },
        modelProviders: {
          openai: [
            {
              id: model,
              name: model,
              envKey: "TOLLGATE_KEY",
              baseUrl: `${url}/v1`,
              generationConfig: { contextWindowSize: window, samplingParams: { max_tokens: output } }
            }
          ]
        }
      }
    }),
    run: () => "qwen",
    notes: []
  },
  {
    name: "pi",
    title: "pi",
    surface: "chat",
    tried: { version: "0.73.1", did: "writes a file by its tool" },
    settings: ({ model, output, url, window }) => ({
      "~/.pi/agent/models.json": {
        providers: {
          tollgate: {
            baseUrl: `${url}/v1`,
            api: "openai-completions",
            apiKey: "TOLLGATE_KEY",
            models: [{ id: model, contextWindow: window, maxTokens: output }]
          }
        }
      }
    }),
    run: ({ model }) => `pi --provider tollgate --model ${model}`,
    notes: ["`apiKey` names the variable of the environment that has the key."]
  },
  {
    name: "cline",
    title: "Cline CLI",
    surface: "chat",
    firstRequest: 6_000,
    tried: { version: "3.0.65", did: "writes a file by its tool" },
    environment: () => ({ OPENAI_API_KEY: "$TOLLGATE_KEY" }),
    settings: ({ model, output, url, window }) => ({
      "~/.cline/data/settings/providers.json": {
        version: 1,
        lastUsedProvider: "openai-compatible",
        modes: {},
        providers: {
          "openai-compatible": {
            settings: { provider: "openai-compatible", model, baseUrl: `${url}/v1` },
            updatedAt: "2026-01-01T00:00:00.000Z",
            tokenSource: "manual"
          }
        }
      },
      "~/.cline/data/settings/models.json": {
        version: 1,
        providers: {
          "openai-compatible": {
            provider: { name: "OpenAI Compatible", baseUrl: `${url}/v1`, client: "openai-compatible" },
            models: {
              [model]: {
                id: model,
                name: model,
                contextWindow: window,
                maxTokens: output,
                capabilities: ["tools", "streaming"]
              }
            }
          }
        }
      }
    }),
    run: () => "cline",
    notes: [
      "Without `maxTokens` in `models.json` Cline asks for more than a gateway with a low `NUM_PREDICT_CAP` allows, which is a 400.",
      "The extension for VS Code has fields of the same names: provider “OpenAI Compatible”, base URL, model, context window, max output tokens. It keeps the key in the store of VS Code."
    ]
  },
  {
    name: "continue",
    title: "Continue",
    surface: "chat",
    tried: { version: "1.5.47", did: "writes a file by its tool" },
    settings: ({ model, output, url, window }) => ({
      "~/.continue/tollgate.yaml": `name: Tollgate
version: 0.0.1
schema: v1
models:
  - name: ${JSON.stringify(model)}
    provider: openai
    model: ${JSON.stringify(model)}
    apiBase: ${url}/v1
    apiKey: \${{ secrets.TOLLGATE_KEY }}
    roles: [chat, edit, apply]
    capabilities: [tool_use]
    defaultCompletionOptions:
      contextLength: ${window}
      maxTokens: ${output}
`
    }),
    run: () => "cn --config ~/.continue/tollgate.yaml",
    notes: [
      "What was run is its command line, `cn`. The extensions read `~/.continue/config.yaml`: copy the entry of `models` there, and the line `TOLLGATE_KEY=…` into `~/.continue/.env`.",
      "Fill-in-the-middle of the `ollama` provider is off, because the gateway shows no templates of models."
    ]
  },
  {
    name: "zed",
    title: "Zed",
    surface: "chat",
    environment: () => ({ TOLLGATE_API_KEY: "$TOLLGATE_KEY" }),
    settings: ({ model, output, url, window }) => ({
      "~/.config/zed/settings.json": {
        language_models: {
          openai_compatible: {
            Tollgate: {
              api_url: `${url}/v1`,
              available_models: [
                {
                  name: model,
                  display_name: model,
                  max_tokens: window,
                  max_output_tokens: output,
                  capabilities: {
                    tools: true,
                    images: false,
                    parallel_tool_calls: true,
                    prompt_cache_key: false
                  }
                }
              ]
            }
          }
        }
      }
    }),
    run: () => "zed",
    notes: [
      "Zed reads the key from `TOLLGATE_API_KEY` when it is started from this shell, else from its own store (Agent Settings).",
      "Its requests are replayed from its source in `real/replay.real.ts`."
    ]
  },
  {
    name: "aider",
    title: "aider",
    surface: "chat",
    tried: { version: "0.86.2", did: "answers" },
    environment: ({ url }) => ({ OPENAI_API_BASE: `${url}/v1`, OPENAI_API_KEY: "$TOLLGATE_KEY" }),
    settings: ({ model, output, window }) => ({
      [`${folder}/aider.json`]: {
        [`openai/${model}`]: {
          max_input_tokens: window - output,
          max_output_tokens: output,
          litellm_provider: "openai",
          mode: "chat"
        }
      }
    }),
    run: ({ model }) => `aider --model openai/${model} --model-metadata-file ${folder}/aider.json`,
    notes: [
      "aider calls no tools: it writes its edits as text. It warns near `max_input_tokens`, and sends no output bound."
    ]
  },
  {
    name: "open-webui",
    title: "Open WebUI",
    surface: "chat",
    tried: { version: "0.12.4", did: "answers" },
    environment: ({ model, url }) => ({
      OPENAI_API_BASE_URL: `${url}/v1`,
      OPENAI_API_KEY: "$TOLLGATE_KEY",
      DEFAULT_MODELS: model,
      ENABLE_OLLAMA_API: "false",
      ENABLE_FORWARD_USER_INFO_HEADERS: "true"
    }),
    run: () => "open-webui serve",
    notes: [
      "These variables count at the first start; later it is Admin → Settings → Connections → OpenAI. Window and output bound are parameters of a model there (`max_tokens`).",
      "With `tollgate set-end-user --key … --header X-OpenWebUI-User-Id` the audit names the user of each request.",
      "As an Ollama connection it works too: URL without a path, and the key under the gear. “Loaded models” stays empty and pulling is refused; its version check without the key is a 401, which it tolerates.",
      "Its requests are replayed from its source in `real/replay.real.ts`."
    ]
  },
  {
    name: "ai-sdk",
    title: "AI SDK",
    surface: "chat",
    tried: { version: "@ai-sdk/openai 4.0.118 with ai 7.0.173", did: "answers" },
    environment: ({ url }) => ({ OPENAI_BASE_URL: `${url}/v1`, OPENAI_API_KEY: "$TOLLGATE_KEY" }),
    settings: ({ model, output }) => ({
      "tollgate-model.mjs": `import { createOpenAI } from "@ai-sdk/openai"

const openai = createOpenAI({ baseURL: process.env.OPENAI_BASE_URL, apiKey: process.env.OPENAI_API_KEY })

/** \`openai("…")\` alone would be /v1/responses. */
export const model = openai.chat(${JSON.stringify(model)})
export const bounds = { maxOutputTokens: ${output} }
`
    }),
    notes: [
      'Use it as `generateText({ model, ...bounds, prompt: "…" })`.',
      "With `EXTRA_SURFACES=responses`, `openai(…)` works too. Set `store: false` in `providerOptions.openai` there: the gateway stores no items.",
      "The AI SDK shortens nothing: keep prompt and answer below the window yourself."
    ]
  }
]
