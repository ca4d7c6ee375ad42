/**
 * Proof that a gate has decided in favour of a request.
 *
 * The class is private to this module and carries a private field, so a value of this type cannot be written
 * as a literal or cast into being; it comes out of `evidence`, which only the layers of gates import
 * (`test/unit/architecture.test.ts` keeps it so). `domain/Permit.ts` asks for one piece per gate.
 */
import type { Gate } from "./Errors.ts"

class Sealed<G extends Gate, A> {
  readonly #gate: G
  readonly value: A
  constructor(gate: G, value: A) {
    this.#gate = gate
    this.value = value
  }
  get gate(): G {
    return this.#gate
  }
}

export type Evidence<G extends Gate, A> = Sealed<G, A>

/** Seals `value` as the decision of `gate`. For the layers of that gate only. */
export const evidence = <G extends Gate, A>(gate: G, value: A): Evidence<G, A> => new Sealed(gate, value)
