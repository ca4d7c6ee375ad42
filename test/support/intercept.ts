import { Effect } from "effect"

/**
 * The service, with `before` before each effect that it is or returns: what `before` fails or dies with is what the caller gets.
 * `atOnce`: functions that act when they are called, and throw what `before` dies with. Other parts that are no effects stay as they are.
 */
export const intercept = <S extends object>(
  service: S,
  before: (part: string) => Effect.Effect<void, unknown>,
  atOnce: ReadonlyArray<keyof S> = []
): S =>
  new Proxy(service, {
    get: (target, property, receiver) => {
      const part: unknown = Reflect.get(target, property, receiver)
      const guarded = (made: () => unknown): unknown => {
        const effect = made()
        return Effect.isEffect(effect) ? Effect.andThen(before(String(property)), effect) : effect
      }
      if (typeof part !== "function" || Effect.isEffect(part)) return guarded(() => part)
      const call = (args: ReadonlyArray<unknown>): unknown => Reflect.apply(part, target, args)
      return atOnce.some((name) => name === property)
        ? (...args: ReadonlyArray<unknown>) => {
            Effect.runSync(before(String(property)))
            return call(args)
          }
        : (...args: ReadonlyArray<unknown>): unknown => guarded(() => call(args))
    }
  })
