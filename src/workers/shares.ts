/**
 * What a worker has of each bound of the gateway. A setting is a bound of all workers together; a worker has its share,
 * rounded up, so that none has nothing. Bounds that are not here are those of one worker (docs/operations.md has all).
 */
import { availableParallelism } from "node:os"
import type { SettingsValues } from "../Settings.ts"

export const share = (total: number, workers: number): number => Math.ceil(total / workers)

/** Connections of clients, of all addresses. Idle ones cost a few KiB each. */
const maxConnections = 16_384
/** New connections of an address that are read at once: a second, and after a quiet time. */
const newConnections = { perSecond: 300, burst: 1000 }
/** Refusals of unknown callers: a second, and after a quiet second. */
const anonymousRefusals = { perSecond: 200, burst: 100 }
/** Refusals of unknown callers that may wait to be written. */
const anonymousBacklog = 5000
/** The largest answer that a worker must be able to collect, and room for others beside it (`UNREAD_ANSWERS_MAX_BYTES`). */
const leastAnswerBytes = 50_331_648
/** Connections to the database of one process, and of each of several. */
const databaseConnections = { alone: 10, each: 5 }
/** A worker needs one connection to listen, and others that do not wait for each other: intents, completions, refusals. */
export const leastDatabaseConnections = 4

/** Connections to the database of all workers. */
export const databaseConnectionsOf = (settings: SettingsValues, workers: number): number =>
  settings.databaseConnections ?? Math.max(databaseConnections.alone, databaseConnections.each * workers)

/** At least enough for several bodies of the largest size at once. */
const requestBodiesMaxBytesOf = (settings: SettingsValues): number =>
  settings.requestBodiesMaxBytes ?? Math.max(67_108_864, 4 * settings.maxRequestBodyBytes)

export const sharesOf = (
  settings: SettingsValues,
  workers: number,
  cores: number = availableParallelism()
) => {
  const own = (total: number) => share(total, workers)
  const ownCores = Math.max(1, Math.floor(cores / workers))
  return {
    requestBodiesMaxBytes: Math.max(own(requestBodiesMaxBytesOf(settings)), 2 * settings.maxRequestBodyBytes),
    unreadAnswersMaxBytes: Math.max(
      own(settings.unreadAnswersMaxBytes),
      Math.min(settings.unreadAnswersMaxBytes, leastAnswerBytes)
    ),
    connections: own(maxConnections),
    connectionsPerAddress: own(settings.maxConnectionsPerAddress),
    newConnections: { perSecond: own(newConnections.perSecond), burst: own(newConnections.burst) },
    anonymousRefusals: { perSecond: own(anonymousRefusals.perSecond), burst: own(anonymousRefusals.burst) },
    anonymousRowsPerMinute: own(settings.anonymousRowsPerMinute),
    anonymousBacklog: own(anonymousBacklog),
    databaseConnections: Math.max(
      leastDatabaseConnections,
      Math.floor(databaseConnectionsOf(settings, workers) / workers)
    ),
    // At most three, because libuv has four threads and other work needs one.
    verifies: Math.min(3, Math.max(1, ownCores - 1)),
    spareVerifies: ownCores > 1 ? 1 : 0
  }
}
export type Shares = ReturnType<typeof sharesOf>
