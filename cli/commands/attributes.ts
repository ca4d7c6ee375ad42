/** The commands that change the attributes of keys and tenants, and show their budgets. */
import { Effect, Schema, Struct } from "effect"
import { Command, Flag } from "effect/cli"
import { mustBe } from "../../src/admin/Errors.ts"
import { Needs } from "../Needs.ts"
import type { KeyInfo, Owner, RuleChange, TenantInfo } from "../../src/admin/rows.ts"
import * as Values from "../../src/admin/Values.ts"
import { described } from "../help.ts"
import * as flags from "../flags.ts"
import { inForce } from "../gateways.ts"
import { eachUserOf } from "../../src/domain/attributes.ts"
import { withoutDefaultTag } from "../../src/domain/modelName.ts"
import { allowlistHints, installedModels, requireInstalled } from "../modelHints.ts"
import { budgetTable, eachUserTable, limitTable, plainly, ruleTable } from "../tables.ts"
import { amount, counted, noteAsText, notes, notesAsText, show } from "../terminal.ts"
import { times } from "../zone.ts"

const eachUser = flags.toggle("each-user", "Of each end user of the key, instead of the key itself")

/** Of whom the values are. */
const parts = { eachUser, user: flags.optional(flags.endUser.user), yes: flags.endUser.yes }

/** The value of a rule that an attribute is like. */
const valuesOfRules = {
  rpm: "rpm",
  tpm: "tpm",
  concurrent: "concurrent",
  budgetDaily: "daily",
  budgetWeekly: "weekly",
  budgetMonthly: "monthly",
  budgetTotal: "total"
} as const satisfies Record<keyof typeof eachUserOf, keyof RuleChange>

const isEachUser = Schema.is(Schema.Literals(Struct.keys(eachUserOf)))
const isOfModel = Schema.is(Schema.Literals(["rpm", "tpm", "budgetDaily"]))

/** Fails when an attribute is given that a part of its owner has not. */
const requireOnly = (part: string, given: flags.GivenAttributes, has: (attribute: string) => boolean) => {
  const alien = Object.keys(given).find((one) => given[one] !== undefined && !has(one))
  return alien === undefined ? Effect.void : mustBe(flags.optionOf(alien), `given without --${part}`)
}

/** Changes what a part of an owner may use: one end user of a key, or a key, or each key of a tenant, of one model. */
const changePart = Effect.fnUntraced(function* (
  owner: Owner,
  { model, user = "", yes }: { readonly model?: string; readonly user?: string; readonly yes: boolean },
  given: flags.GivenAttributes
) {
  yield* model === undefined ? requireOnly("user", given, isEachUser) : requireOnly("model", given, isOfModel)
  const values = Struct.renameKeys(yield* Values.keyChange(given), valuesOfRules)
  const registry = yield* Needs.registry
  const name =
    model !== undefined
      ? withoutDefaultTag(model)
      : "key" in owner
        ? yield* flags.userOf(owner.key, user, yes)
        : yield* mustBe("user", "given with --key, not with --tenant")
  const [rules, none, options] =
    model === undefined
      ? (["userRules", "that of each user", undefined] as const)
      : (["modelRules", "none of its own", ["rpm", "tpm", "daily"]] as const)
  const ruleOf = (one: KeyInfo | TenantInfo) => {
    const all: KeyInfo["userRules"] = "prefix" in one ? one[rules] : one.modelRules
    return all.find((rule) => rule.name === name)
  }
  const before = ruleOf(yield* registry.show(owner))
  if (model !== undefined && before === undefined) {
    const catalog = yield* installedModels
    if (!yes) yield* requireInstalled(catalog, "model", [model])
    yield* notes(allowlistHints(catalog, [model]))
  }
  const changed = yield* registry.changeRule(owner, rules, name, values)
  const rule = ruleOf(changed) ?? {}
  yield* show(changed, ruleTable(name, rule, options))
  yield* notesAsText(changesOf(before ?? {}, rule, values, none))
  yield* inForce(null)
})

/** Changes attributes of an owner, or with `--each-user` those of each user that are like them. Returns what was given and what it is. */
const change = Effect.fnUntraced(function* (owner: Owner, isEach: boolean, options: flags.GivenAttributes) {
  const registry = yield* Needs.registry
  if (isEach && "tenant" in owner) return yield* mustBe("each-user", "given with --key, not with --tenant")
  if (isEach) yield* requireOnly("each-user", options, isEachUser)
  const given: flags.GivenAttributes = isEach ? Struct.renameKeys(options, eachUserOf) : options
  yield* flags.checkOwner(given, owner)
  const before = yield* registry.show(owner)
  return { given, before, changed: yield* registry.change(owner, given) }
})

const valueOf = (attributes: object, attribute: string, none = "the tenant's"): string =>
  plainly(Reflect.get(attributes, attribute) ?? (attribute.startsWith("eachUser") ? "none" : none))

/** `--rpm was 60 and is 300` */
const changesOf = (
  before: object,
  after: object,
  given: flags.GivenAttributes,
  none?: string
): ReadonlyArray<string> =>
  Object.keys(given).flatMap((attribute) => {
    const [was, is] = [valueOf(before, attribute, none), valueOf(after, attribute, none)]
    return given[attribute] === undefined ? [] : [`--${flags.optionOf(attribute)} was ${was} and is ${is}`]
  })

/** How many keys of a tenant its new limits are for. */
const reachOf = (keys: ReadonlyArray<KeyInfo>, given: flags.GivenAttributes): ReadonlyArray<string> => {
  const limits = (["rpm", "tpm", "concurrent"] as const).filter((limit) => given[limit] !== undefined)
  const active = keys.filter(({ status }) => status === "active")
  const own = active.filter((key) => limits.every((limit) => key[limit] !== null)).length
  return limits.length === 0
    ? []
    : [
        `It holds for ${counted(active.length - own, "active key")} of the tenant; ${own} with limits of their own keep them.`
      ]
}

export const setLimits = Command.make(
  "set-limits",
  {
    tenant: flags.owner.tenant,
    key: flags.owner.key,
    ...parts,
    yes: flags.toggle("yes", "Also when no request has named that user, or the model server lacks the model"),
    model: flags.optionalText("model", "name", "For one model, beside the limits of the key"),
    daily: flags.optional(flags.numberOrNone("daily", "Tokens per day, with --model")),
    attributes: flags.changeFlags("set-limits")
  },
  Effect.fnUntraced(function* ({ daily, eachUser, model, user, yes, attributes: options, ...given }) {
    if (model === undefined && daily !== undefined)
      return yield* mustBe("daily", "given with --model; set-budget sets other budgets")
    const ofModel = { rpm: options["rpm"], tpm: options["tpm"], budgetDaily: daily }
    yield* flags.requireOne(model === undefined ? options : ofModel)
    const owner = yield* flags.readOwner(given, "tenant")
    if (model !== undefined) {
      if (user !== undefined || eachUser)
        return yield* mustBe("model", "given without --user and --each-user")
      return yield* changePart(owner, { model, yes }, { ...options, ...ofModel })
    }
    if (user !== undefined && eachUser) return yield* mustBe("user", "given without --each-user")
    if (user !== undefined) return yield* changePart(owner, { user, yes }, options)
    const registry = yield* Needs.registry
    const keys = "tenant" in owner ? yield* registry.listKeys(owner.tenant) : undefined
    const { before, changed, given: attributes } = yield* change(owner, eachUser, options)
    yield* show(changed, eachUser && "prefix" in changed ? eachUserTable(changed) : limitTable(changed))
    yield* notesAsText([
      ...changesOf(before, changed, attributes),
      ...(keys === undefined ? [] : reachOf(keys, attributes))
    ])
    yield* inForce("key" in owner ? owner.key : null)
  })
).pipe(
  described(
    "Set the limits of a tenant or of one key; other limits do not change",
    "tollgate set-limits --tenant acme --rpm 300 --concurrent 16",
    "tollgate set-limits --tenant acme --weight 3",
    "tollgate set-limits --key tg_4fJ2kQ9sX --priority batch",
    ["tollgate set-limits --key tg_4fJ2kQ9sX --each-user --rpm 10", "Limit each person behind one key"],
    [
      "tollgate set-limits --key tg_4fJ2kQ9sX --user ada@example.com --rpm 30",
      "Give one of them another limit"
    ],
    ["tollgate set-limits --key tg_4fJ2kQ9sX --tpm none", "Use the tenant's limit again"],
    [
      "tollgate set-limits --key anna --model llama3.2:3b --rpm 10 --daily 100k",
      "What a key may use of one model"
    ],
    ["tollgate set-limits --tenant acme --model llama3.1:70b --daily 1M", "The same for each key of a tenant"]
  )
)

const showBudgets = Effect.fnUntraced(function* (owner: Owner, user?: string) {
  const registry = yield* Needs.registry
  if (user !== undefined && "tenant" in owner)
    return yield* mustBe("user", "given with --key, not with --tenant")
  const states = yield* registry.showBudgets(owner, user)
  yield* show(states, budgetTable(states))
  if (user !== undefined && states.every(({ spent }) => spent === 0))
    yield* notesAsText(['No tokens are counted for this name. "tollgate report --by user" lists the names.'])
})

export const setBudget = Command.make(
  "set-budget",
  { ...flags.owner, ...parts, attributes: flags.changeFlags("set-budget") },
  Effect.fnUntraced(function* ({ eachUser, user, yes, attributes: options, ...given }) {
    yield* flags.requireOne(options)
    const owner = yield* flags.readOwner(given, "key")
    if (user !== undefined && eachUser) return yield* mustBe("user", "given without --each-user")
    if (user !== undefined) return yield* changePart(owner, { user, yes }, options)
    const { changed } = yield* change(owner, eachUser, options)
    if (eachUser && "prefix" in changed) yield* show(changed, eachUserTable(changed))
    else yield* showBudgets(owner)
    // Other keys may share the budgets.
    yield* inForce(null)
  })
).pipe(
  described(
    "Set the token budgets of a key, or those that all keys of a tenant share; other periods do not change",
    "tollgate set-budget --key tg_4fJ2kQ9sX --daily 100000 --weekly 400000",
    "tollgate set-budget --tenant acme --monthly 50000000",
    ["tollgate set-budget --key tg_4fJ2kQ9sX --daily none", "Remove the daily budget"],
    [
      "tollgate set-budget --key tg_4fJ2kQ9sX --each-user --daily 20k",
      "Give each person behind one key a budget"
    ],
    ["tollgate set-budget --key webui --user ada@example.com --daily 100k", "Give one of them another"]
  )
)

export const addBudget = Command.make(
  "add-budget",
  {
    ...flags.owner,
    tokens: flags.numberOrNone("tokens", 'More tokens for each of its budgets; "none" ends an extra budget'),
    until: flags.optional(
      flags.deadline("until", "When it ends: the end of fri, tomorrow or 2027-01-31; 18:00; 3d")
    )
  },
  Effect.fnUntraced(function* ({ tokens, until, ...given }) {
    if ((tokens === null) !== (until === undefined))
      return yield* mustBe("until", tokens === null ? "left out with --tokens none" : "given")
    const owner = yield* flags.readOwner(given, "key")
    const extra = tokens === null || until === undefined ? null : { tokens, until }
    const added = yield* (yield* Needs.registry).addBudget(owner, extra)
    yield* showBudgets(owner)
    yield* noteAsText(
      added === null
        ? "No extra budget is in force."
        : `${amount(added.tokens)} tokens more until ${(yield* times)(added.until, "end")}: what is used from now on counts against them first.`
    )
    // Other keys may share the budgets.
    yield* inForce(null)
  })
).pipe(
  described(
    "Give a key or a tenant more tokens until a time; then its budgets are what they were",
    ["tollgate add-budget --key anna --tokens 50000 --until fri", "In the place of another extra budget"],
    "tollgate add-budget --tenant acme --tokens 2M --until 2026-12-24T18:00",
    ["tollgate add-budget --key anna --tokens none", "End it now"]
  )
)

export const showBudget = Command.make(
  "show-budget",
  {
    ...flags.owner,
    user: flags.optionalText("user", "name", 'One end user of the key; "" is all requests without a name')
  },
  ({ user, ...given }) => Effect.flatMap(flags.readOwner(given, "key"), (owner) => showBudgets(owner, user))
).pipe(
  described(
    "Show the budgets of a key or a tenant, and what was spent of them according to the ledger",
    "tollgate show-budget --key tg_4fJ2kQ9sX",
    "tollgate show-budget --key tg_4fJ2kQ9sX --user ada@example.com",
    "tollgate show-budget --tenant acme"
  )
)

export const setEndUser = Command.make(
  "set-end-user",
  {
    key: flags.key("key"),
    header: flags.text("header", "name|none", 'Header with the end user of a request; "none" removes it'),
    hashUsers: flags.optional(
      Flag.Literals("hash-users", ["on", "off"]).pipe(
        Flag.withDescription("Store hashes instead of names; those counted until now begin anew")
      )
    )
  },
  Effect.fnUntraced(function* ({ hashUsers, header, key: named }) {
    const [registry, prefix] = yield* flags.keyIn(named)
    const key = yield* Effect.catchTag(
      registry.changeKey(prefix, {
        endUserHeader: header === "none" ? null : header,
        ...(hashUsers === undefined ? {} : { hashUsers: hashUsers === "on" })
      }),
      "InvalidValue",
      ({ expected }) => mustBe("header", expected)
    )
    yield* show(
      key,
      key.endUserHeader === null
        ? `${key.prefix}: no header with the end user`
        : `${key.prefix}: the audit stores ${key.hashUsers ? "a hash of " : ""}${key.endUserHeader} as the end user of a request`
    )
    yield* inForce(prefix)
  })
).pipe(
  described(
    "Set the header with the end user of a key's requests",
    "tollgate set-end-user --key tg_4fJ2kQ9sX --header X-OpenWebUI-User-Id",
    "tollgate set-end-user --key tg_4fJ2kQ9sX --header X-User-Email --hash-users on",
    "tollgate set-end-user --key tg_4fJ2kQ9sX --header none"
  )
)

export const setPromptLog = Command.make(
  "set-prompt-log",
  {
    key: flags.key("key"),
    on: flags.toggle("on", "Store the prompts and answers of this key"),
    off: flags.toggle("off", "Stop storing them"),
    retentionDays: flags.optional(
      flags.count("retention-days", "Days to store each prompt; default PROMPT_LOG_DEFAULT_RETENTION_DAYS")
    )
  },
  Effect.fnUntraced(function* ({ key: named, off, on, retentionDays }) {
    if (on === off) return yield* mustBe("on", "given, or --off, but not both")
    const [registry, prefix] = yield* flags.keyIn(named)
    const key = yield* registry.changeKey(prefix, {
      promptLog: on,
      ...(retentionDays === undefined ? {} : { promptLogDays: retentionDays })
    })
    const days = key.promptLogDays === null ? "the default time" : `${key.promptLogDays} days`
    yield* show(
      key,
      key.promptLog
        ? `${key.prefix}: prompts and answers are kept for ${days}`
        : `${key.prefix}: prompts and answers are not kept`
    )
    yield* inForce(prefix)
  })
).pipe(
  described(
    "Store the prompts and answers of a key, or stop storing them",
    "tollgate set-prompt-log --key tg_4fJ2kQ9sX --on --retention-days 7"
  )
)
