/** The text that embedded mode prints at its start. */

export interface Welcome {
  readonly baseUrl: string
  /** whether the playground is served */
  readonly playground: boolean
  /** what `EXTRA_SURFACES` switches on */
  readonly extraSurfaces: ReadonlySet<string>
  /** the demo key, on the first start only: it is not stored */
  readonly key: string | undefined
  /** the model in the lines to paste */
  readonly model: string
  readonly dataDir: string
  readonly backend: string
}

const lines = (baseUrl: string, key: string, model: string): ReadonlyArray<string> => [
  `curl -N ${baseUrl}/api/chat -H 'Authorization: Bearer ${key}' -H 'Content-Type: application/json' -d '{"model":"${model}","messages":[{"role":"user","content":"Hello"}]}'`,
  `curl -N ${baseUrl}/v1/chat/completions -H 'Authorization: Bearer ${key}' -H 'Content-Type: application/json' -d '{"model":"${model}","stream":true,"messages":[{"role":"user","content":"Hello"}]}'`,
  `npx node --input-type=module -e "import OpenAI from 'openai'; const client = new OpenAI({ baseURL: '${baseUrl}/v1', apiKey: '${key}' }); console.log((await client.chat.completions.create({ model: '${model}', messages: [{ role: 'user', content: 'Hello' }] })).choices[0].message.content)"`
]

export const welcome = (facts: Welcome): string => {
  const key = facts.key ?? "<your key>"
  return [
    "",
    `  Tollgate is listening on ${facts.baseUrl}`,
    ...(facts.playground ? [`  playground    ${facts.baseUrl}/playground`] : []),
    `  model server  ${facts.backend}`,
    `  data          ${facts.dataDir}`,
    ...(facts.extraSurfaces.size === 0
      ? ["  agents        EXTRA_SURFACES=responses,messages npm start lets Codex and Claude Code in"]
      : [`  agents        ${[...facts.extraSurfaces].map((name) => `/v1/${name}`).join(", ")}`]),
    facts.key === undefined
      ? "  key           shown at the first start only; another one: npx tollgate create-key --tenant demo --name mine"
      : `  key           ${facts.key}   (tenant demo; shown this once)`,
    "",
    "  Try it:",
    "",
    ...lines(facts.baseUrl, key, facts.model).flatMap((line) => [line, ""])
  ].join("\n")
}
