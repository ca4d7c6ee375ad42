/**
 * The running processes of the gateway, and the last report of each, in a table of the database. For `tollgate status`.
 *
 * A command asks all of them through the table `questions`: to read keys again, to end the requests of a key, or to list what runs.
 * The question is notified, and each process writes its answer to the row. A notification says nothing but the id, because every
 * user of the database may send and hear them.
 */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Context, Effect, Layer, Schema } from "effect"
import { makeRowReader, oneRow } from "../infra/rows.ts"
import { makeMonotonicMs, timeoutDetached } from "../infra/time.ts"

/** All times are the database's. */
const Replica = Schema.Struct({
  /** random, new at each start */
  id: Schema.String,
  host: Schema.String,
  version: Schema.String,
  started: Schema.Date,
  /** seconds since then */
  upS: Schema.Finite,
  /** seconds since its last report */
  silentS: Schema.Finite,
  /** whether it reports */
  alive: Schema.Boolean,
  /** seconds until a process that does not report is not listed any more */
  leavesInS: Schema.Finite,
  /** values by name; a gauge with labels has one entry for each, as `name{value}`; null: no finite value */
  gauges: Schema.Record(Schema.String, Schema.NullOr(Schema.Finite))
})
export type Replica = typeof Replica.Type

/** A process reports this often, in seconds. */
export const reportEveryS = 5
/** After this many seconds without a report a process counts as gone. */
export const goneAfterS = 3 * reportEveryS
/** The row of a process that ended without a word is deleted after this many seconds. */
export const forgetAfterS = 3600

/** A request that a process has open. */
export const OpenRequest = Schema.Struct({
  request_id: Schema.String,
  /** whether it waits in the queue */
  waits: Schema.Boolean,
  age_ms: Schema.Finite,
  tenant: Schema.String,
  key: Schema.String,
  end_user: Schema.NullOr(Schema.String),
  model: Schema.String,
  /** used until now, and held of its limits and budgets */
  tokens_in: Schema.Finite,
  tokens_out: Schema.Finite,
  held: Schema.Finite
})
export type OpenRequest = typeof OpenRequest.Type

const Question = Schema.Struct({
  /** `refresh`: what is known of the key is read again; `stop`: its requests end, and new ones go on; `list`: only that */
  action: Schema.Literals(["refresh", "stop", "list"]),
  /** the prefix of a key; null: all */
  key: Schema.NullOr(Schema.String)
})
export type Question = typeof Question.Type

const Answer = Schema.Struct({
  /** how many requests of the key are open */
  open: Schema.Finite,
  /** of `list`: the oldest of them */
  requests: Schema.Array(OpenRequest)
})
export type Answer = typeof Answer.Type

/** What the processes that report have answered, and those that have not. */
export interface Answered {
  readonly answers: ReadonlyArray<Answer>
  readonly silent: ReadonlyArray<Replica>
}

/** Its payload is the id of a question. */
export const questionChannel = "tollgate_question"
const askedAgainMs = 15
/** A question whose command ended without a word is deleted after this many seconds. */
const answeredWithinS = 3600

const questions = makeRowReader(() => "a question", Question)
const answersOf = makeRowReader(
  () => "the answers of the gateways",
  Schema.Struct({ answers: Schema.Record(Schema.String, Answer) })
)
const asked = oneRow({ id: Schema.String })

const replicas = makeRowReader(({ id }) => `replica ${String(id)}`, Replica)

const make = Effect.gen(function* () {
  const pg = yield* PgClient.PgClient
  const nowMs = yield* makeMonotonicMs
  const bounded = timeoutDetached("2 seconds")
  const list = bounded(
    replicas.all(pg`
        SELECT id::text, host, version, started, gauges, "upS", "silentS",
          "silentS" <= ${goneAfterS} AS alive, ${forgetAfterS}::float8 - "silentS" AS "leavesInS"
        FROM (SELECT *, started_at AS started,
            extract(epoch FROM clock_timestamp() - started_at)::float8 AS "upS",
            extract(epoch FROM clock_timestamp() - seen_at)::float8 AS "silentS" FROM replicas) r
        ORDER BY alive DESC, started, id`)
  )
  return {
    /** Writes the row of a process. It also deletes rows of processes that have been silent for `forgetAfterS`. */
    report: ({ gauges, host, id, version }: Pick<Replica, "id" | "host" | "version" | "gauges">) =>
      Effect.asVoid(
        bounded(pg`
          WITH forgotten AS (
            DELETE FROM replicas
            WHERE seen_at < now() - make_interval(secs => ${forgetAfterS}) AND id <> ${id}::text::uuid
          )
          INSERT INTO replicas (id, host, version, gauges)
          VALUES (${id}::text::uuid, ${host}, ${version}, ${pg.json(gauges)})
          ON CONFLICT (id) DO UPDATE SET seen_at = now(), gauges = excluded.gauges`)
      ),
    /** Deletes the row of a process that ends. */
    leave: (id: string) => Effect.asVoid(bounded(pg`DELETE FROM replicas WHERE id = ${id}::text::uuid`)),
    /** All rows, first those that report, the oldest process first. */
    list,
    /** Asks the processes that report, and waits for their answers for at most `withinMs`. */
    ask: Effect.fnUntraced(function* ({ action, key }: Question, withinMs: number) {
      const alive = (yield* list).filter((replica) => replica.alive)
      if (alive.length === 0) return { answers: [], silent: [] } satisfies Answered
      const { id } = yield* bounded(
        asked(pg`
          WITH forgotten AS (
            DELETE FROM questions WHERE asked_at < now() - make_interval(secs => ${answeredWithinS})
          ), asked AS (INSERT INTO questions (action, key) VALUES (${action}, ${key}) RETURNING id)
          SELECT id::text, pg_notify(${questionChannel}, id::text) IS NULL AS told FROM asked`)
      )
      const read = bounded(answersOf.first(pg`SELECT answers FROM questions WHERE id = ${id}::text::uuid`))
      const end = nowMs() + withinMs
      for (;;) {
        const { answers = {} } = (yield* read) ?? {}
        const silent = alive.filter((replica) => answers[replica.id] === undefined)
        if (silent.length === 0 || nowMs() >= end) {
          // Answers may be long. What is left here goes with a later question.
          yield* Effect.ignore(bounded(pg`DELETE FROM questions WHERE id = ${id}::text::uuid`))
          return { answers: Object.values(answers), silent } satisfies Answered
        }
        yield* Effect.sleep(askedAgainMs)
      }
    }),
    /** What was asked; undefined: there is no such question. */
    question: (id: string) =>
      bounded(questions.first(pg`SELECT action, key FROM questions WHERE id::text = ${id}`)),
    /** Writes the answer of a process. */
    answer: (question: string, id: string, answer: Answer) =>
      Effect.asVoid(
        bounded(pg`
          UPDATE questions SET answers = answers || jsonb_build_object(${id}::text, ${pg.json(answer)})
          WHERE id::text = ${question}`)
      )
  }
})

export class Replicas extends Context.Service<Replicas>()("tollgate/replicas/Replicas", { make }) {}

export const layerPostgres: Layer.Layer<Replicas, never, PgClient.PgClient> = Layer.effect(Replicas, make)
