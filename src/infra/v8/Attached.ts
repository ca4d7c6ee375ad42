/**
 * Attaches values to objects that come and go with connections and requests. It is not a `WeakMap`: a collection of young
 * objects keeps every value of a `WeakMap` that is in old space, and with it the key, if the value refers to it. So the
 * `WeakMap`s of sockets kept each closed connection, with its last request, until the next full collection. Here the object refers to its value, and nothing else does.
 */

/** An object as it is: a class that extends it adds its private field to that object. */
// oxlint-disable-next-line no-extraneous-class -- its constructor is what a subclass needs
class Itself {
  constructor(object: object) {
    return object
  }
}

export interface Attached<O extends object, V> {
  readonly get: (object: O) => V | undefined
  readonly set: (object: O, value: V) => void
}

/** One kind of value. A call for each module, not for each connection: it makes a class. */
export const makeAttached = <O extends object, V>(): Attached<O, V> => {
  class Field extends Itself {
    #value: V

    constructor(object: O, value: V) {
      super(object)
      this.#value = value
    }

    static get(object: O): V | undefined {
      return #value in object ? object.#value : undefined
    }

    static set(object: O, value: V): void {
      if (#value in object) object.#value = value
      else void new Field(object, value)
    }
  }
  return Field
}
