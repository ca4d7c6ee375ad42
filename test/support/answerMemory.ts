import { AnswerMemory } from "../../src/backend/AnswerMemory.ts"

/** As much as a gateway has by default. */
export const layerAnswerMemory = AnswerMemory.layer({ maxBytes: 100_663_296 })
