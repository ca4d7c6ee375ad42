/** A new sampling option needs one more decision than its row in `sampling.ts`. */
import { assert, it } from "@effect/vitest"
import { decoding } from "../decoding.ts"
import { routes } from "../../../../src/http/routes.ts"
import { collectingOptions, streamingOptions } from "../../../../src/domain/outputPlan.ts"
import { nativeOptions, openaiOptions } from "../../../../src/http/dialect/sampling.ts"

it("when there is a sampling option, then outputPlan.ts says whether it makes a backend collect its output", () => {
  const undecided = Object.keys({ ...nativeOptions, ...openaiOptions }).filter(
    (name) => !streamingOptions.has(name) && !collectingOptions.has(name)
  )
  assert.deepStrictEqual(
    undecided,
    [],
    "put the option into streamingOptions or collectingOptions of src/domain/outputPlan.ts"
  )
})

it("when a request names what would load the model anew, pin it or leak, or what nobody knows, then on no surface anything of it is sent", () => {
  const unwanted = { num_ctx: 8192, num_gpu: 1, num_batch: 9, main_gpu: 1, use_mmap: false, num_thread: 3 }
  const unknown = {
    MODEL: "other",
    _debug_render_only: true,
    api_base: "http://evil",
    made_up: { deep: true },
    user: "u",
    stream_options: { include_usage: true }
  }
  const body = {
    model: "m",
    max_tokens: 9,
    messages: [{ role: "user", content: "hi" }],
    input: "hi",
    keep_alive: -1,
    options: { ...unwanted, ...unknown },
    ...unwanted,
    ...unknown
  }
  for (const route of routes) {
    if (!("dialect" in route) || route.handler === "show") continue
    const { body: sent, options } = decoding(route.dialect).accepted({
      ...body,
      // On /v1/responses it would be a stored prompt.
      ...(route.path === "/v1/responses" ? {} : { prompt: "hi" })
    })
    assert.deepStrictEqual(options, {}, route.path)
    for (const name of [...Object.keys({ ...unwanted, ...unknown }), "keep_alive", "options"])
      assert.notProperty(sent, name, route.path)
  }
})
