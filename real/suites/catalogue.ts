/** Suites of others that run beside a real server, and what fails at the gateway, by decision or because a document cannot say it. */

import type { definitions } from "../ollama/modelfiles.ts"

export interface Suite {
  readonly name: string
  /** a file of `real/clients/python/requirements`, for Python; `go`: the integration tests of Ollama */
  readonly environment: string
  /** for Python or the tests; `{openapi}`, `{url}`, `{key}` and `{suites}`, this folder, stand for them */
  readonly args: ReadonlyArray<string>
  /** what it prints of a test: its verdict and its name */
  readonly verdict: RegExp
  /** it is about the document of the gateway */
  readonly isOurs?: boolean
  /** the names of models that it asks for → the model of `modelfiles.ts` that has them while it runs */
  readonly copies?: Readonly<Record<string, keyof typeof definitions>>
  /** what fails at the gateway and not at the server, and with it what it is a part of → why */
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

/** What fits models of a few hundred kilobytes that only chat, call tools and embed. */
const integration = [
  "TestAPI",
  "TestBasic/(blue|num|unicode)",
  "TestEmbedding/embed(-|ding-)",
  "TestContext/(context|^generate-history)",
  "TestConcurrency/concurrent-chat",
  "TestTools/tools/qwen3.5",
  "TestStructuredOutput/structured-output/llama3.2"
]

const window = "it makes the window small by `num_ctx`, which is dropped unless NUM_CTX_CAP is set"

export const suites: ReadonlyArray<Suite> = [
  {
    name: "Schemathesis",
    environment: "schemathesis",
    args: [
      ..."-m schemathesis.cli run {openapi} --url {url} -H".split(" "),
      "Authorization: Bearer {key}",
      ..."--phases examples,coverage,fuzzing,stateful --max-examples 60 --continue-on-failure --no-color".split(
        " "
      )
    ],
    verdict: /^ +(✅|❌|🚫) (Examples|ST\d+ [^:]+|(?<=🚫 )\w+)(?:: \d+)?$/gm,
    isOurs: true,
    known: {
      "ST108 SSE event violates schema":
        "it compares an event, and the document has the data of one, as OpenAI's own document has it",
      "ST202 Schema-valid request rejected":
        "a schema cannot say what is an image, a document or a model that embeds, or that a text of several is not empty"
    }
  },
  {
    name: "Ollama's integration tests",
    environment: "go",
    args: ["-test.v", "-test.timeout=20m", `-test.run=${integration.join("|")}`],
    verdict: /^ +--- (PASS|FAIL): (\S+)/gm,
    copies: {
      "llama3.2:1b": "integration",
      "llama3.2": "integration",
      "qwen3.5:2b": "integration",
      "gemma2:2b": "integration",
      "all-minilm": "embed"
    },
    known: {
      "TestAPI/api-show-model/llama3.2": "a Modelfile and a template are nobody's but the operator's",
      "TestAPI/api-generate/llama3.2:1b":
        "/api/ps of 0.24.0 has the name by which the weights were loaded: another copy's",
      "TestEmbedding/embed-api-truncate/all-minilm/truncate_error": window,
      "TestEmbedding/embed-api-truncate/all-minilm/input_after_truncate_error": window,
      "TestEmbedding/embed-api-truncate/all-minilm/input_after_truncate_error_with_context_length_of_1":
        window,
      "TestEmbedding/embed-truncation/all-minilm/truncation_batch": window,
      "TestEmbedding/embed-status-code/all-minilm/truncation_error_status_code": window,
      "TestEmbedding/embed-status-code/all-minilm/batch_truncation_error_status_code": window
    }
  },
  langchain("ChatOllama"),
  langchain("ChatOpenAI"),
  langchain("ChatOpenAIResponses"),
  langchain("ChatAnthropic"),
  langchain("OllamaEmbeddings"),
  langchain("OpenAIEmbeddings")
]
