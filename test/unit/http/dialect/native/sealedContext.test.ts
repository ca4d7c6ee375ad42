import { guards } from "../../../../../src/backend/ollama/guards/guards.ts"
import { randomBytes } from "node:crypto"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as fc from "fast-check"
import { Unavailable } from "../../../../../src/domain/Errors.ts"
import { noContext, sealFor, withContext } from "../../../../../src/http/dialect/native/sealedContext.ts"
import { nativeGenerate } from "../../../../../src/http/dialect/native/dialect.ts"
import { generateEncoder } from "../../../../../src/http/dialect/native/answer.ts"
import {
  maxContextNumber,
  maxContextNumbers,
  openContext,
  sealContext
} from "../../../../../src/http/dialect/native/sealedContext.ts"
import { checkCapabilities } from "../../../../../src/gates/models/resolveModel.ts"
import { ContextSecret } from "../../../../../src/secrets/ContextSecret.ts"
import { modelNamed } from "../../../../support/permits.ts"
import { decoding } from "../../decoding.ts"
import { testWith } from "../../../../support/testWith.ts"

const secret = randomBytes(32)
const owner = { keyId: "key-1", digest: "d" }
const kept = { read: Effect.succeed(secret) }
const down = { read: Effect.fail(new Unavailable({ gate: "KeyStore", cause: "down" })) }
const ids = fc.array(fc.integer({ min: 0, max: 300_000 }), { maxLength: 200 })
const seal = (of: ReadonlyArray<number>, for_ = owner) => sealContext(secret, for_, of) ?? []

const test = testWith(it.effect)

describe("a sealed context", () => {
  it("when it is opened, then it has the ids that were sealed, and its form is a list of numbers that clients accept", () => {
    fc.assert(
      fc.property(ids, (of) => {
        const numbers = seal(of)
        assert.isTrue(
          numbers.every((number) => Number.isInteger(number) && number >= 0 && number <= maxContextNumber)
        )
        assert.deepStrictEqual(openContext(secret, owner.keyId, numbers), { digest: owner.digest, ids: of })
      })
    )
  })

  it("when the key or the secret is another, or a number was changed, then it is not opened", () => {
    const numbers = seal([1, 2, 3, 128_000])
    assert.isUndefined(openContext(secret, "key-2", numbers))
    assert.isUndefined(openContext(randomBytes(32), owner.keyId, numbers))
    fc.assert(
      fc.property(fc.nat(numbers.length - 1), fc.integer({ min: 0, max: maxContextNumber }), (at, number) => {
        const changed = numbers.map((old, i) => (i === at ? number : old))
        if (changed[at] === numbers[at]) return
        assert.isUndefined(openContext(secret, owner.keyId, changed))
      })
    )
    for (const length of [0, 1, 2, numbers.length - 1]) {
      assert.isUndefined(openContext(secret, owner.keyId, numbers.slice(0, length)))
    }
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 0, max: maxContextNumber }), { maxLength: 100 }), (forged) => {
        assert.isUndefined(openContext(secret, owner.keyId, forged))
      })
    )
  })

  it("when equal contexts are sealed, then the results differ and show no ids", () => {
    const [one, other] = [seal([42, 42, 42]), seal([42, 42, 42])]
    assert.notDeepEqual(one, other)
  })

  it("when it would be longer than what is accepted back, then none is given", () => {
    assert.isUndefined(
      sealContext(
        secret,
        owner,
        Array.from({ length: maxContextNumbers }, () => 100_000)
      )
    )
  })

  it("when an id is larger than a number of the list, then none is given", () =>
    assert.isUndefined(sealContext(secret, owner, [maxContextNumber + 1])))

  it("when the digest of the model does not fit, then none is given, because none would be accepted", () => {
    const fits = { ...owner, digest: `sha512-${"é".repeat(36)}` }
    assert.strictEqual(openContext(secret, owner.keyId, seal([1], fits))?.digest, fits.digest)
    assert.isUndefined(sealContext(secret, { ...owner, digest: `${fits.digest}..` }, [1]))
  })

  const request = (context: ReadonlyArray<number>) =>
    decoding(nativeGenerate).accepted({ model: "m", prompt: "p", context: [...context] })

  test("when it is not opened yet, then it is not forwarded, and after that it counts a token for each id", function* () {
    const sealed = request(seal([7, 8, 9]))
    assert.notProperty(sealed.body, "context")
    const opened = yield* withContext(kept, owner.keyId, sealed)
    assert.deepStrictEqual(opened.body["context"], [7, 8, 9])
    assert.strictEqual(opened.contextDigest, "d")
    for (const forged of [
      [99_999_999 & maxContextNumber],
      [1, 2, 3],
      seal([1], { keyId: "other", digest: "d" })
    ]) {
      const refused = yield* Effect.flip(withContext(kept, owner.keyId, request(forged)))
      assert.deepInclude(refused, { detail: "context: expected what an earlier answer to this key gave" })
    }
    assert.strictEqual((yield* Effect.flip(withContext(down, owner.keyId, sealed)))._tag, "Unavailable")
  })

  test("when it belongs to another version of the model, then it is refused before anything is consumed", function* () {
    const model = modelNamed("m:latest")
    const base = request([])
    yield* Effect.fromResult(checkCapabilities({ ...base, contextDigest: model.digest }, model, guards))
    const refused = yield* Effect.flip(
      Effect.fromResult(checkCapabilities({ ...base, contextDigest: "older" }, model, guards))
    )
    assert.include(refused.detail, "context: expected one of this model")
  })

  it.effect(
    "when an answer has a context, then the client gets the sealed one, and without the secret none",
    () =>
      Effect.gen(function* () {
        const frame = { createdAt: "2026-01-01T00:00:00Z", text: "", done: true, context: [5, 6, 7] }
        const sealing = yield* sealFor(kept, owner)
        const { context } = JSON.parse(generateEncoder("m", sealing).object(frame))
        assert.deepStrictEqual(openContext(secret, owner.keyId, context), { digest: "d", ids: [5, 6, 7] })
        assert.strictEqual(yield* sealFor(down, owner), noContext)
        assert.notProperty(JSON.parse(generateEncoder("m", noContext).object(frame)), "context")
      }).pipe(Effect.provideService(ContextSecret, kept))
  )
})
