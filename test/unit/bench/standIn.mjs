#!/usr/bin/env node
// Stands in for a built Bifrost: reads the configuration it is given, checks virtual keys, and asks the provider.
import { readFileSync } from "node:fs"
import { createServer } from "node:http"
import { join } from "node:path"
import { parseArgs } from "node:util"

// Go writes long options with one dash.
const args = process.argv.slice(2).map((arg) => (/^-[a-z]/.test(arg) ? `-${arg}` : arg))
const text = { type: "string" }
const { values } = parseArgs({
  args,
  options: { "app-dir": text, host: text, port: text, "log-level": text }
})
const config = JSON.parse(readFileSync(join(values["app-dir"], "config.json"), "utf8"))
const keys = new Map(config.governance.virtual_keys.map((key) => [`Bearer ${key.value}`, key]))

createServer((request, response) => {
  const chunks = []
  request.on("data", (chunk) => chunks.push(chunk))
  request.on("end", async () => {
    if (request.method === "GET") return response.writeHead(404).end()
    if (!keys.has(request.headers.authorization)) return response.writeHead(401).end("{}")
    const body = JSON.parse(Buffer.concat(chunks).toString())
    const [provider, model] = body.model.split("/")
    const { base_url } = config.providers[provider].network_config
    const answer = await fetch(`${base_url}${request.url}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ ...body, model })
    })
    response.writeHead(answer.status, { "content-type": answer.headers.get("content-type") ?? "" })
    return response.end(Buffer.from(await answer.arrayBuffer()))
  })
}).listen(Number(values.port), values.host)
