/** A surface is a family of endpoints whose answers look alike. Everything that all endpoints of a surface share is here. */
import type { JsonObject } from "./Inference.ts"

/** The surfaces that `EXTRA_SURFACES` switches on. */
export const extraSurfaces = ["responses", "messages"] as const

export type ExtraSurface = (typeof extraSurfaces)[number]

/** What a client is told about an error. */
export interface ShownError {
  readonly status: number
  readonly type: string
  readonly message: string
}

export type ErrorBody = (error: ShownError, requestId: string) => JsonObject

/** `ERROR_BODIES`: errors in the form of the specification, or in the one that clients of each API can read. */
export const errorBodyForms = ["specification", "clients"] as const
export type ErrorBodyForm = (typeof errorBodyForms)[number]

export interface Surface {
  readonly name: string
  /** the JSON of an error */
  readonly errorBody: ErrorBody
  /** the same with `ERROR_BODIES=clients`, where that differs */
  readonly clientErrorBody?: ErrorBody
  /** a further header with the id of the request, for clients that look for it there */
  readonly idHeader?: string
  /** whether `x-api-key: <key>` is a key too */
  readonly takesApiKey?: boolean
}

/** What the route table says of the answers of a request. */
export interface ServedRoute {
  readonly path: string
  readonly surface: Surface
}
