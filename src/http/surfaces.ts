/** The surfaces whose errors have the common shape. A dialect with another one has its surface in its own folder. */
import type { Surface } from "../domain/Surface.ts"
import { errorBody } from "./errors/errorResponses.ts"

export const native: Surface = { name: "native", errorBody }
export const openai: Surface = { name: "openai", errorBody }
export const operations: Surface = { name: "operations", errorBody }
