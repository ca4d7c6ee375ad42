/**
 * Decides which requests are traced (`OTLP_SAMPLE_RATIO`).
 *
 * A client that does not sample its trace gets no spans. A client that does gets them for the ratio of its traces, so it
 * cannot make the gateway send more than the ratio. It chooses its trace ids, so they are hashed with a random key: it
 * cannot choose ids that are always sampled. The key belongs to one process. So a process decides the same for all
 * requests of a trace, and two replicas may decide differently.
 */
import { createHmac, randomBytes } from "node:crypto"
import { Context, type Tracer } from "effect"

/** Whether a request is traced. `parent` is the span of its client. */
export type Sampler = (parent: Tracer.ExternalSpan | undefined) => boolean

export const makeSampler = (ratio: number, key: Buffer = randomBytes(32)): Sampler => {
  const isWithinRatio = (traceId: string): boolean =>
    ratio >= 1 || createHmac("sha256", key).update(traceId).digest().readUInt32BE() / 2 ** 32 < ratio
  return (parent) =>
    parent === undefined ? Math.random() < ratio : parent.sampled && isWithinRatio(parent.traceId)
}

/** The sampler in force. Without a setting every request is traced that its client does not exclude. */
export const Sampling = Context.Reference<Sampler>("tollgate/observability/Sampling", {
  defaultValue: () => makeSampler(1)
})
