/** Messages in the shape of Ollama, as every surface but the native one makes them of its own. */
import type { Json, JsonObject } from "../../domain/Inference.ts"
import { present } from "../../domain/json.ts"

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

type Id = string | null | undefined

/** The tools that were called so far. A result has the id of its call, but the backend needs the name of the tool. */
export class Calls {
  readonly #names = new Map<Id, string>()

  call(id: Id, name: string, args: JsonObject): JsonObject {
    this.#names.set(id, name)
    return { ...present({ id }), function: { name, arguments: args } }
  }

  result(id: Id, said: Omit<Said, "role">, name?: string | null): JsonObject {
    return {
      ...nativeMessage({ role: "tool", ...said }),
      ...present({ tool_call_id: id, tool_name: name ?? this.#names.get(id) })
    }
  }
}
