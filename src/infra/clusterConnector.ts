/**
 * The connections to the nodes of a Redis Cluster. The client drops their errors: it says only that no node was left, and
 * not that a certificate is wrong. So these connections report each error themselves.
 */
import { connect as connectPlain } from "node:net"
import { type ConnectionOptions, connect as connectEncrypted } from "node:tls"
import { Schema } from "effect"
import { AbstractConnector } from "ioredis"

const isNode = Schema.is(Schema.Struct({ host: Schema.String, port: Schema.Finite }))

/** How long a connection may take to close before it is cut, milliseconds. */
const closeMs = 2000

export const makeConnector = (tls: ConnectionOptions | undefined, report: (error: Error) => void) =>
  class extends AbstractConnector {
    readonly #node: unknown

    constructor(node: unknown) {
      super(closeMs)
      this.#node = node
    }

    /**
     * It rejects instead of throwing, because after an exception ioredis waits for ever. A server may name a node by a port
     * that does not exist.
     */
    override async connect() {
      this.connecting = true
      if (!isNode(this.#node)) throw new Error("a node without an address")
      const { host, port } = this.#node
      const stream =
        tls === undefined ? connectPlain({ host, port }) : connectEncrypted({ ...tls, host, port })
      stream.once("error", (error) => {
        this.firstError = error
        report(error)
      })
      this.stream = stream
      return stream
    }
  }
