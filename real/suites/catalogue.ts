/** Suites of others that run beside a real server, and what fails at the gateway, by decision or because a document cannot say it. */

export interface Suite {
  readonly name: string
  /** a file of `real/clients/python/requirements` */
  readonly environment: string
  /** for Python; `{openapi}`, `{url}`, `{key}` and `{suites}`, this folder, stand for them */
  readonly args: ReadonlyArray<string>
  /** what it prints of a test: its verdict and its name */
  readonly verdict: RegExp
  /** it is about the document of the gateway */
  readonly isOurs?: boolean
  /** what fails at the gateway and not at the server → why */
  readonly known?: Readonly<Record<string, string>>
}

const langchain = (name: string): Suite => ({
  name: `LangChain's standard tests, ${name}`,
  environment: "langchain-standard",
  // Its clients keep a connection between tests, so all of them share a loop.
  args: `-m pytest -q -rA --tb=no -p no:cacheprovider -o asyncio_mode=auto -o asyncio_default_test_loop_scope=session -o asyncio_default_fixture_loop_scope=session {suites}/langchain_standard.py::Test${name}`.split(
    " "
  ),
  verdict: /^(PASSED|FAILED|ERROR) [^:]+::(\S+)/gm
})

export const suites: ReadonlyArray<Suite> = [
  {
    name: "Schemathesis",
    environment: "schemathesis",
    args: [
      ..."-m schemathesis.cli run {openapi} --url {url} -H".split(" "),
      "Authorization: Bearer {key}",
      ..."--phases examples,fuzzing --max-examples 60 --continue-on-failure --no-color".split(" ")
    ],
    verdict: /^ +(✅|❌) (Examples|ST\d+ [^:]+)(?:: \d+)?$/gm,
    isOurs: true,
    known: {
      "ST108 SSE event violates schema":
        "it compares an event, and the document has the data of one, as OpenAI's own document has it",
      "ST202 Schema-valid request rejected":
        "a schema cannot say what is an image, a document or a model that embeds, or that a text of several is not empty"
    }
  },
  langchain("ChatOllama"),
  langchain("ChatOpenAI"),
  langchain("ChatOpenAIResponses"),
  langchain("ChatAnthropic"),
  langchain("OllamaEmbeddings"),
  langchain("OpenAIEmbeddings")
]
