/**
 * The file of `export` and `apply`: tenants and the attributes of keys, in YAML or JSON. A field that is absent does not
 * change; null removes a value. Keys are named by their prefix: the file has no secret, so it can make no key.
 */
import { Effect, Predicate, Record, Result, Schema, SchemaIssue, Struct } from "effect"
import { budgetFields, budgetOf, type KeyOverview, type TenantInfo } from "../src/admin/rows.ts"
import {
  KeyChange,
  keyTexts,
  ModelList,
  RetentionDays,
  type AttributeText,
  TenantChange,
  tenantTexts
} from "../src/domain/attributes.ts"
import { snakeCase } from "../src/domain/text.ts"
import { FileInvalid } from "./errorMessages.ts"
import { yaml } from "./files.ts"

const optional = Schema.optionalKey

/** In the file, fields have names in snake_case. */
const inFile = <F extends Schema.Struct.Fields>(fields: F) =>
  Schema.Struct(fields).pipe(Schema.encodeKeys(Record.map(fields, (_, field) => snakeCase(field))))

const keyFields = Struct.map(KeyChange.fields, Schema.toType)
const tenantFields = Struct.map(TenantChange.fields, Schema.toType)

const budgetNames = {
  daily: budgetOf.day,
  weekly: budgetOf.week,
  monthly: budgetOf.month,
  total: budgetOf.total
} as const
const Budgets = Schema.Struct(Record.map(budgetNames, (field) => keyFields[field]))

/** An attribute is a field, but for those that have another form here. */
const Key = inFile({
  prefix: Schema.String,
  /** for the reader: a key keeps its name */
  name: optional(Schema.String),
  enabled: optional(Schema.Boolean),
  ...Struct.omit(keyFields, [...budgetFields, "promptLog", "promptLogDays"]),
  budgets: optional(Budgets),
  /** the days that prompts are stored; true turns the log on and does not change the days */
  promptLog: optional(Schema.Union([Schema.Boolean, RetentionDays]))
})

const Tenant = inFile({
  name: Schema.String,
  enabled: optional(Schema.Boolean),
  ...Struct.omit(tenantFields, [...budgetFields, "allowAllModels", "allowedModels", "modelAliases"]),
  /** the allowlist, or `all` */
  models: optional(Schema.Union([Schema.Literal("all"), ModelList])),
  /** all aliases: others are removed */
  aliases: optional(Schema.Record(Schema.String, Schema.String)),
  /** shared by all keys of the tenant */
  budgets: optional(Budgets),
  keys: optional(Schema.Array(Key))
})

export const Declaration = Schema.Struct({
  version: Schema.Literal(1),
  tenants: Schema.Array(Tenant)
})
export type Declaration = typeof Declaration.Type
export type DeclaredTenant = typeof Tenant.Type
export type DeclaredKey = typeof Key.Type

/** Far more than ten thousand keys need. */
export const maxFileBytes = 16_777_216

const decode = Schema.decodeUnknownResult(Declaration, { onExcessProperty: "error" })
const issuesOf = SchemaIssue.makeFormatterStandardSchemaV1()

const texts: ReadonlyArray<readonly [attribute: string, text: AttributeText]> = Object.entries({
  ...tenantTexts,
  ...keyTexts
})

/** The place in the file, and what was expected there. */
const problemOf = ({ issue }: Schema.SchemaError): string => {
  const [first] = issuesOf(issue).issues
  const path = (first?.path ?? []).map(String)
  const place = path.map((part) => (/^\d+$/.test(part) ? `[${part}]` : `.${part}`)).join("")
  const known = texts.find(([attribute, { name }]) =>
    [snakeCase(attribute), name].includes(path.at(-1) ?? "")
  )
  return (
    place.slice(1) +
    (known === undefined
      ? `: ${/excess property/.test(first?.message ?? "") ? "there is no such field" : first?.message}`
      : ` must be ${known[1].expected}`)
  )
}

/** Fails with what is wrong, on one line. */
export const readDeclaration = Effect.fnUntraced(function* (file: string, text: string) {
  const { parse } = yield* yaml
  const invalid = (problem: string) => new FileInvalid({ file, problem })
  const document = yield* Effect.try({
    // A document with many aliases would grow beyond all memory.
    try: (): unknown => parse(text, { maxAliasCount: 100, prettyErrors: true, uniqueKeys: true }),
    catch: (error) => invalid(error instanceof Error ? (error.message.split("\n")[0] ?? "") : "it is no YAML")
  })
  return yield* Effect.mapError(Effect.fromResult(decode(document)), (error) => invalid(problemOf(error)))
})

/** The attributes to write. The registry leaves out what is no attribute. */
export const keyChangeOf = ({ budgets = {}, promptLog, ...attributes }: DeclaredKey): KeyChange => ({
  ...attributes,
  ...Struct.renameKeys(budgets, budgetNames),
  ...(promptLog === undefined ? {} : { promptLog: promptLog !== false }),
  ...(typeof promptLog === "number" ? { promptLogDays: promptLog } : {})
})

export const tenantChangeOf = ({
  aliases,
  budgets = {},
  models,
  ...attributes
}: DeclaredTenant): TenantChange => ({
  ...attributes,
  ...Struct.renameKeys(budgets, budgetNames),
  ...(models === undefined
    ? {}
    : models === "all"
      ? { allowAllModels: true }
      : { allowAllModels: false, allowedModels: models }),
  ...(aliases === undefined
    ? {}
    : { modelAliases: Object.entries(aliases).map(([alias, model]) => ({ alias, model })) })
})

const declaredBudgets = (row: Pick<TenantInfo, (typeof budgetFields)[number]>) =>
  Record.map(budgetNames, (field) => row[field])

const declaredKey = ({ promptLog, promptLogDays, ...key }: KeyOverview): DeclaredKey => ({
  ...key,
  enabled: key.status !== "disabled",
  budgets: declaredBudgets(key),
  promptLog: promptLog ? (promptLogDays ?? true) : false
})

/** What is in force now. Revoked keys are left out: nothing of them can change. */
export const declarationOf = (
  tenants: ReadonlyArray<TenantInfo>,
  keys: ReadonlyArray<KeyOverview>
): Declaration => ({
  version: 1,
  tenants: tenants.map(({ allowAllModels, allowedModels, modelAliases, ...tenant }) => ({
    ...tenant,
    enabled: tenant.status === "active",
    models: allowAllModels ? "all" : allowedModels,
    aliases: Object.fromEntries(modelAliases.map(({ alias, model }) => [alias, model])),
    budgets: declaredBudgets(tenant),
    keys: keys.filter((key) => key.tenant === tenant.name && key.status !== "revoked").map(declaredKey)
  }))
})

const encode = Schema.encodeSync(Declaration)

/** Without fields that say nothing: null, and objects of nothing else. */
const lean = (value: unknown): unknown =>
  Array.isArray(value)
    ? value.map(lean)
    : Predicate.isObject(value)
      ? Record.filterMap({ ...value }, (field) => {
          const kept = lean(field)
          const says = kept !== null && (!Predicate.isObject(kept) || Object.keys(kept).length > 0)
          return says ? Result.succeed(kept) : Result.failVoid
        })
      : value

export const writeDeclaration = Effect.fnUntraced(function* (declaration: Declaration, asJson: boolean) {
  const document = lean(encode(declaration))
  if (asJson) return JSON.stringify(document, undefined, 2)
  const { stringify } = yield* yaml
  return `# tollgate export. A field that is absent does not change; null removes a value. No secret is here.\n${stringify(
    document,
    { lineWidth: 0 }
  ).trimEnd()}`
})
