import { assert, describe, it } from "@effect/vitest"
import { errorTexts, refusalOf } from "../../../../src/backend/ollama/errors.ts"

/** Texts of Ollama 0.11.4, 0.24.0, 0.33.3 and of llama-server, by what they speak about; `server`: its own failure. */
const texts: Readonly<Record<keyof typeof errorTexts, ReadonlyArray<string>>> = {
  memory: [
    // 0.11.4, 0.24.0
    "model requires more system memory (8.0 GiB) than is available (2.0 GiB)",
    // 0.24.0
    "model requires more system memory than is currently available unable to load full model on GPU",
    "failed to allocate memory for model",
    "failed to commit memory for model",
    "memory layout cannot be allocated",
    "memory layout cannot be allocated with num_gpu = 99",
    "insufficient memory for image generation: need 12 GB, have 8 GB",
    // 0.33.3
    "llama-server reported out-of-memory during startup: ggml_backend_cuda_buffer_type_alloc_buffer: cudaMalloc failed: out of memory"
  ],
  context: [
    "the input length exceeds the context length",
    "input length exceeds maximum context length",
    "the prompt is longer than the context length currently available",
    "Failed to create new sequence: entire prompt removed by truncation",
    "input is too large to process. increase the physical batch size",
    "request (9000 tokens) exceeds the available context size (4096 tokens)"
  ],
  schema: [
    "invalid JSON schema in format",
    'invalid format: "\\"xml\\""; expected \\"json\\" or a valid JSON Schema object',
    "failed to load model vocabulary required for format",
    "Failed to create new sequence: unable to create sampling context",
    "failed to parse grammar"
  ],
  image: [
    "Failed to create new sequence: failed to process inputs: image: unknown format",
    "Failed to create new sequence: failed to process inputs: png: invalid format: not a PNG file",
    "Failed to create new sequence: failed to process inputs: invalid image index: 3",
    "this model only supports one image while more than one image requested",
    "this model is missing data required for image input",
    "unable to make llava embedding from image",
    "Failed to load image or audio file"
  ],
  feature: [
    "registry.ollama.ai/library/x:latest does not support tools",
    '"x" does not support thinking',
    "this model does not support embeddings"
  ],
  other: [
    "Failed to create new sequence: no input provided",
    "Failed to create new sequence: failed to process inputs: tokenization failed, required 12 tokens",
    "unable to shift context - keep exceeds context (keep: 5000 context: 2048)",
    "template: :3:14: executing at <index .Messages 1>: error calling index: index out of range: 1",
    "Conversation roles must alternate user/assistant/user/assistant/...",
    "Jinja Exception: Unexpected message role.",
    "Unknown role: control",
    "error parsing tool call: raw='x', err=invalid character 'x'",
    "llama-server returned invalid tool call arguments for \"x\": invalid character 'x'",
    "failed to encode response: json: unsupported value: NaN",
    "embedding contains NaN or Inf values"
  ],
  server: [
    "model runner has unexpectedly stopped, this may be due to resource limitations or an internal error, check ollama server logs for details",
    "an error was encountered while running the model: unexpected EOF",
    "llama runner process has terminated: exit status 2: unable to create llama context size",
    "llama runner process has terminated: GGML_ASSERT(grammar) failed",
    "model failed to load, this may be due to resource limitations or an internal error, check ollama server logs for details",
    "llama runner process has terminated: cudaMalloc failed: out of memory",
    "llama-server process has terminated: exit status 1: failed to allocate buffer for kv cache",
    "CUDA error: out of memory, image encoder",
    "unable to load model: /root/.ollama/models/blobs/sha256-1",
    "unsupported tokenizer: llama",
    "no tokenizer configured",
    "could not find a kv cache slot",
    "unexpected server status: llm server not responding",
    "unable to allocate batch (batchSize=512 maxSeq=1 embedSize=0) for image",
    ""
  ]
}

describe("an error text of the model server", () => {
  for (const [about, [says]] of Object.entries(errorTexts)) {
    for (const text of new Map(Object.entries(texts)).get(about) ?? []) {
      it(`when it says "${text.slice(0, 60)}", then it speaks about the ${about}`, () => {
        assert.strictEqual(refusalOf(JSON.stringify({ error: text })), says)
      })
    }
  }
})
