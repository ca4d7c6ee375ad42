/** Command lines as fingers and scripts make them: each does what it says, or ends with one line and a code we document. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { mintKey } from "../../src/domain/Key.ts"
import { Admin, tollgateHere } from "../cli/inProcess.ts"
import { Random } from "./Random.ts"
import { full, seed, tell } from "./run.ts"

const commands = [
  "create-tenant",
  "list-tenants",
  "disable-tenant",
  "enable-tenant",
  "set-models",
  "show-usage",
  "create-key",
  "list-keys",
  "rotate-key",
  "revoke-key",
  "disable-key",
  "enable-key",
  "set-budget",
  "show-budget",
  "set-prompt-log",
  "set-limits",
  "list-models",
  "migrate",
  "serve",
  "destroy"
] as const

const flags = [
  "--name",
  "--tenant",
  "--prefix",
  "--key",
  "--rpm",
  "--tpm",
  "--concurrent",
  "--models",
  "--allow-all",
  "--no-allow-all",
  "--allow-all-models",
  "--scopes",
  "--expires-in",
  "--expires-at",
  "--daily",
  "--monthly",
  "--total",
  "--period",
  "--on",
  "--off",
  "--retention-days",
  "--grace",
  "--json",
  "--secret",
  "--",
  "-",
  "-x",
  "--name=",
  "--rpm=5"
] as const

const key = mintKey("tg_")

const values = [
  "fuzz",
  "nobody",
  "tg_000000000",
  key,
  `${key}${key}`,
  key.slice(0, 40),
  "",
  " ",
  "a b",
  "0",
  "1",
  "5",
  "-1",
  "1.5",
  "1e3",
  "9007199254740991",
  "9007199254740992",
  "99999999999999999999",
  "NaN",
  "none",
  "day",
  "month",
  "total",
  "chat",
  "chat,embeddings",
  "admin",
  "30d",
  "0d",
  "1w",
  "2027-01-31",
  "2027-02-30",
  "2027-01-31T12:00:00Z",
  "m:1,n:latest",
  ",",
  "'; DROP TABLE tenants; --",
  "%",
  "$(id)",
  "__proto__",
  "\u001b[31mred\u001b[0m",
  "a\nb",
  "a\u0000b",
  "\u202eabc",
  "\ud800",
  "😀".repeat(40),
  "x".repeat(100_000),
  "--name",
  "-",
  "--"
] as const

const randomText = (random: Random): string =>
  Array.from({ length: random.int(12) }, () =>
    String.fromCharCode(random.int(random.chance(2) ? 128 : 0x10000))
  ).join("")

/** What works; a value is now and then another one, and a word more or less is there. */
const sound: ReadonlyArray<string> = [
  "create-key --tenant fuzz --name x --scopes chat --rpm 5",
  "create-key --tenant fuzz --name x --expires-in 30d --json",
  "list-keys --tenant fuzz --json",
  "list-tenants",
  "set-models --tenant fuzz --models m:1",
  "set-limits --tenant fuzz --rpm 5 --tpm 5 --concurrent 5",
  "set-limits --key tg_000000000 --rpm none",
  "set-budget --key tg_000000000 --daily 5 --monthly none",
  "show-budget --key tg_000000000",
  "show-usage --tenant fuzz --period day",
  "set-prompt-log --key tg_000000000 --on --retention-days 5",
  "enable-key --prefix tg_000000000",
  "enable-tenant --tenant fuzz"
]

const nearly = (random: Random): ReadonlyArray<string> =>
  (sound[random.int(sound.length)] ?? "")
    .split(" ")
    .flatMap((word) =>
      !random.chance(6) ? [word] : word.startsWith("-") ? [word, random.pick(flags)] : [random.pick(values)]
    )

const words = (random: Random): ReadonlyArray<string> => {
  if (!random.chance(3)) return nearly(random)
  const line: Array<string> = random.chance(20) ? [] : [random.pick(commands)]
  for (let n = random.int(6); n > 0; n -= 1) {
    if (!random.chance(8)) line.push(random.pick(flags))
    if (!random.chance(4)) line.push(random.chance(10) ? randomText(random) : random.pick(values))
  }
  return line
}

const control = /[\p{Cc}\p{Bidi_Control}\p{Zl}\p{Zp}]/u

it.effect(
  "when a command line is random, then it ends with 0, or with 1 and one printable line, without a secret or a stack",
  () =>
    Effect.gen(function* () {
      assert.strictEqual((yield* tollgateHere("create-tenant", "--name", "fuzz")).code, 0)
      const made = yield* tollgateHere("create-key", "--tenant", "fuzz", "--name", "k")
      const prefix = made.stdout.slice(0, 12)
      const random = new Random(seed)
      const count = full ? 5000 : 600
      const codes = new Map<number | null, number>()
      for (let n = 0; n < count; n += 1) {
        const line = words(random).map((word) =>
          word === "tg_000000000" && random.chance(2) ? prefix : word
        )
        const { code, stderr, stdout } = yield* tollgateHere(...line)
        const said = `run ${n} of seed ${seed}: ${JSON.stringify(line).slice(0, 500)}\n${stdout.slice(0, 300)}${stderr.slice(0, 500)}`
        codes.set(code, (codes.get(code) ?? 0) + 1)
        assert.oneOf(code, [0, 1], said)
        assert.notMatch(stdout + stderr, /^\s+at /m, said)
        assert.notMatch(stderr, /internal error|did not answer as it should|SELECT|INSERT/, said)
        // Whoever names a model like a key is shown that name again.
        if (code !== 0 || !/-models|-tenants?$/.test(line[0] ?? ""))
          assert.notInclude(stdout + stderr, key.slice(12, 28), said)
        if (code === 0) continue
        assert.strictEqual(stdout, "", said)
        const oneLine = line.includes("--json")
          ? /^\{"error":\{"message":"[^\n]+"\}\}\n$/
          : /^tollgate: [^\n]+\n$/
        assert.match(stderr, oneLine, said)
        assert.notMatch(stderr.trimEnd(), control, said)
        assert.isBelow(stderr.length, 1000, said)
      }
      tell(`${count} command lines: ${JSON.stringify([...codes])}`)
      assert.isAbove(codes.get(0) ?? 0, count / 10)
    }).pipe(Effect.provide(Admin)),
  full ? 1_800_000 : 120_000
)
