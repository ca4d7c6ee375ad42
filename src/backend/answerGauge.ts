/** Gauges of the memory for answers. */
import { Effect, Layer } from "effect"
import { Metrics } from "../observability/Metrics.ts"
import { AnswerMemory } from "./AnswerMemory.ts"

export const layerAnswerGauge = Layer.effectDiscard(
  Effect.gen(function* () {
    const [memory, metrics] = [yield* AnswerMemory, yield* Metrics]
    yield* metrics.probe({
      name: "tollgate_unread_answer_bytes",
      help: "Bytes of answers in this process: collected from the backend, or not yet read by their clients",
      read: memory.bytes
    })
    yield* metrics.probe({
      name: "tollgate_unread_answers_cut",
      help: "Answers cut since the start, because all together took more than UNREAD_ANSWERS_MAX_BYTES",
      type: "counter",
      read: memory.cuts
    })
    yield* metrics.probe({
      name: "tollgate_answers_waiting",
      help: "Answers that wait for memory before more of them is read from the backend",
      read: memory.waiting
    })
  })
)
