/**
 * The first gate of every endpoint except health: the body is not read before the sender is known.
 *
 * A key may be in one place only: one `Authorization: Bearer <key>` header (RFC 6750, section 2.1), or one `x-api-key: <key>`
 * where the surface takes it. Both together must be the same key.
 */
import type { IncomingMessage } from "node:http"
import { Effect, Result } from "effect"
import { type Caller, userRuleOf } from "../domain/Caller.ts"
import { type Decided, Forbidden, type GatewayError, refuse } from "../domain/Errors.ts"
import type { Evidence } from "../domain/Evidence.ts"
import { KeyStore } from "../gates/keys/KeyStore.ts"
import type { RequestContext } from "../request/RequestContext.ts"
import { FreeWork } from "./FreeWork.ts"
import { addressGroup } from "./server/addresses.ts"
import { headerValues, namedHeaderValues } from "./server/headers.ts"

/** The scheme in any case, and exactly one space. The key store checks the rest. */
const bearer = /^bearer ([^\s]+)$/i

/** The secret; undefined when there is none, when a header is malformed or repeated, and when two headers differ. */
const secretOf = (incoming: IncomingMessage, takesApiKey: boolean): string | undefined => {
  const [authorization, ...others] = headerValues(incoming, "authorization")
  const [apiKey, ...otherKeys] = takesApiKey ? headerValues(incoming, "x-api-key") : []
  if (others.length > 0 || otherKeys.length > 0) return undefined
  if (authorization === undefined) return apiKey
  const token = bearer.exec(authorization)?.[1]
  return apiKey === undefined || apiKey === token ? token : undefined
}

const utf8 = new TextDecoder("utf-8", { fatal: true })

/** Node reads the bytes of a header as Latin-1. Clients write names in UTF-8. */
const headerText = (value: string): string =>
  Result.getOrElse(
    Result.try(() => utf8.decode(Buffer.from(value, "latin1"))),
    () => value
  )

/**
 * The header that the key's operator trusts to name the user. Several of its name are one text, with commas. Where the name decides
 * anything they are refused: each other text would be a new person.
 */
const endUserHeaderOf = (
  incoming: IncomingMessage,
  { endUserHeader, users }: Caller
): Decided<string | undefined> => {
  if (endUserHeader === undefined) return Result.succeed(undefined)
  const values = namedHeaderValues(incoming, endUserHeader)
  return values.length > 1 && users !== undefined
    ? refuse(`${endUserHeader}: expected it once`)
    : Result.succeed(headerText(values.join(", ")))
}

export const makeAuthenticate = Effect.gen(function* () {
  const freeWork = yield* FreeWork
  const keys = yield* KeyStore

  return (
    context: RequestContext,
    incoming: IncomingMessage,
    takesApiKey = context.route?.surface.takesApiKey === true
  ): Effect.Effect<Evidence<"KeyStore">, GatewayError> => {
    const secret = secretOf(incoming, takesApiKey)
    return Effect.flatMapEager(
      keys.verify(secret, addressGroup(context.arrival.clientIp)),
      (key): Effect.Effect<Evidence<"KeyStore">, GatewayError> => {
        context.cost.facts = key.facts
        const { caller } = key.facts
        const endUser = endUserHeaderOf(incoming, caller)
        context.claimEndUser(Result.getOrUndefined(endUser))
        const free = freeWork.check(caller)
        if (Result.isFailure(free)) return Effect.fail(free.failure)
        if (Result.isFailure(endUser)) return Effect.fail(endUser.failure)
        return userRuleOf(caller, context.said.endUser)?.blocked === true
          ? Effect.fail(new Forbidden({ what: "user blocked" }))
          : Effect.succeed(key)
      }
    )
  }
})
