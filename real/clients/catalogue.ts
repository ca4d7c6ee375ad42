/** The clients of the matrix, what each is asked to do, and what is known not to work and why. */

export const cases = [
  "chat",
  "stream",
  "tools",
  "structured",
  "embeddings",
  "list",
  "abort",
  "401",
  "403",
  "413",
  "429",
  "retry-after"
] as const

/** Languages whose clients are one program each, with the command that builds it. */
export const compiled = { go: "go", rust: "cargo", java: "mvn" } as const

export interface ClientScript {
  /** file in `python` or `npm`; the folder of a program */
  readonly script: string
  readonly args: ReadonlyArray<string>
  /** a file of `python/requirements`, one virtual environment each: their pins contradict each other */
  readonly environment: string | "npm" | keyof typeof compiled
}

export const languages = ["Python", "Node", "Go", "Rust", "Java"] as const

export const languageOf = ({ environment }: ClientScript): (typeof languages)[number] => {
  switch (environment) {
    case "npm":
      return "Node"
    case "go":
      return "Go"
    case "rust":
      return "Rust"
    case "java":
      return "Java"
    default:
      return "Python"
  }
}

const python = (script: string, environment: string, ...args: ReadonlyArray<string>): ClientScript => ({
  script: `${script}.py`,
  args,
  environment
})
const npm = (script: string, ...args: ReadonlyArray<string>): ClientScript => ({
  script: `${script}.mjs`,
  args,
  environment: "npm"
})

const program = (environment: keyof typeof compiled, client: string): ClientScript => ({
  script: environment,
  args: [client],
  environment
})

export const clients: ReadonlyArray<ClientScript> = [
  python("openai_sync", "openai"),
  python("openai_async", "openai"),
  python("ollama_native", "ollama", "headers"),
  python("ollama_native", "ollama", "environment"),
  python("langchain_v1", "langchain"),
  python("langchain_native", "langchain"),
  python("llamaindex_v1", "llamaindex"),
  python("llamaindex_native", "llamaindex"),
  python("litellm_forms", "litellm", "openai"),
  python("litellm_forms", "litellm", "ollama_chat"),
  python("litellm_forms", "litellm", "ollama"),
  python("instructor_v1", "instructor"),
  python("pydanticai_v1", "pydanticai"),
  python("anthropic_v1", "anthropic"),
  python("openai_agents", "openaiagents"),
  python("smolagents_v1", "smolagents"),
  python("llm_cli", "llm", "openai"),
  python("llm_cli", "llm", "ollama"),
  python("aider_cli", "aider", "openai"),
  python("aider_cli", "aider", "ollama_chat"),
  npm("openai"),
  npm("openai-responses"),
  npm("anthropic"),
  npm("ollama"),
  npm("ai-sdk", "openai-compatible"),
  npm("ai-sdk", "ollama"),
  npm("ai-sdk", "openai"),
  npm("openai-agents"),
  npm("langchain", "openai"),
  npm("langchain", "ollama"),
  npm("mastra"),
  program("go", "ollama"),
  program("go", "openai"),
  program("rust", "ollama-rs"),
  program("rust", "async-openai"),
  program("java", "openai-java"),
  program("java", "langchain4j-open-ai"),
  program("java", "langchain4j-ollama")
]

const unreadable = "it reads no error with a number as its code; `ERROR_BODIES=clients` sends a text"

/** `client, case` → why it does not work. A run that finds anything else fails, and so does one where it works. */
export const known: Readonly<Record<string, string>> = {
  "litellm, ollama_chat/, embeddings": "it sends no key for embeddings of Ollama",
  "litellm, ollama/, embeddings": "it sends no key for embeddings of Ollama",
  "async-openai, 401": unreadable,
  "async-openai, 403": unreadable,
  "async-openai, 413": unreadable,
  "async-openai, 429": unreadable,
  "langchain4j-ollama, list": "it sends no header of its own",
  "litellm, ollama/, tools": "it asks for tools in the prompt, and the test's model cannot read"
}
