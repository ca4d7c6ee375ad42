/** Messages in the shape of Ollama, as every surface but the native one makes them of its own. */
import { Result, Schema } from "effect"
import type { Json, JsonObject } from "../../domain/Inference.ts"
import { isObject, present } from "../../domain/json.ts"
import { AnyObject } from "./fields.ts"
import { parseJson } from "./strictJson.ts"

/** What one message says. Empty parts of it are left out, but for the text. */
interface Said {
  readonly role: string
  readonly text: string
  readonly thinking?: string | null | undefined
  /** bare base64 */
  readonly images?: ReadonlyArray<string>
  readonly calls?: ReadonlyArray<JsonObject>
}

/** A body may have thousands of messages, so nothing else is made of each. */
export const nativeMessage = ({ calls = [], images = [], role, text, thinking }: Said): JsonObject => {
  const message: { [key: string]: Json } = { role, content: text }
  if (typeof thinking === "string" && thinking !== "") message["thinking"] = thinking
  if (images.length > 0) message["images"] = images
  if (calls.length > 0) message["tool_calls"] = calls
  return message
}

/** The arguments of a call, as models of all kinds wrote them. */
export const Arguments = Schema.Union([Schema.String, AnyObject])

/**
 * The arguments of a call in the history. A client cannot mend what a model wrote, and would send it again in each later request:
 * a text that is no JSON object is one argument (docs/decisions.md). Parsing is as strict as for the body.
 */
const argumentsOf = (given: typeof Arguments.Type | null | undefined): JsonObject => {
  if (typeof given === "object") return given ?? {}
  const text = given?.trim() ?? ""
  if (text === "" || text === "null") return {}
  const parsed = text.startsWith("{") ? Result.getOrUndefined(parseJson(text)) : undefined
  return isObject(parsed) ? parsed : { input: text }
}

type Id = string | null | undefined

/** The tools of a conversation so far. A result has the id of its call, but the backend needs the name of the tool. */
export class Calls {
  readonly #names = new Map<Id, string>()
  /** those that were called, or found by a search */
  readonly mentioned = new Set<string>()

  call(id: Id, name: string, args?: typeof Arguments.Type | null): JsonObject {
    this.#names.set(id, name)
    this.mentioned.add(name)
    return { ...present({ id }), function: { name, arguments: argumentsOf(args) } }
  }

  result(id: Id, said: Omit<Said, "role">, name?: string | null): JsonObject {
    return {
      ...nativeMessage({ role: "tool", ...said }),
      ...present({ tool_call_id: id, tool_name: name ?? this.#names.get(id) })
    }
  }
}
