import { Effect } from "effect"

/**
 * The service, with `before` before each effect that it is or returns: what `before` fails or dies with is what the caller gets.
 * Parts that are no effects stay as they are.
 */
export const intercept = <S extends object>(
  service: S,
  before: (part: string) => Effect.Effect<void, unknown>
): S =>
  new Proxy(service, {
    get: (target, property, receiver) => {
      const part: unknown = Reflect.get(target, property, receiver)
      const guarded = (made: () => unknown): unknown => {
        const effect = made()
        return Effect.isEffect(effect) ? Effect.andThen(before(String(property)), effect) : effect
      }
      return typeof part === "function" && !Effect.isEffect(part)
        ? (...args: ReadonlyArray<unknown>): unknown => guarded(() => Reflect.apply(part, target, args))
        : guarded(() => part)
    }
  })
