/** A chat with the types that openapi-typescript made of openapi.json, on each surface of /v1. */
import createClient from "openapi-fetch"
import type { paths } from "./api.d.ts"

const { KEY = "", URL: baseUrl = "" } = process.env
const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${KEY}` } })
const say = (text: unknown) => process.stdout.write(`${String(text)}\n`)
const messages = [{ role: "user" as const, content: "Hi" }]

const chat = await client.POST("/v1/chat/completions", { body: { model: "m", messages } })
const choice = chat.data && "choices" in chat.data ? chat.data.choices[0] : undefined
say(choice && "message" in choice ? choice.message.content : chat.error)

const response = await client.POST("/v1/responses", { body: { model: "m", input: "Hi" } })
const item = response.data && "output" in response.data ? response.data.output[0] : undefined
say(item?.type === "message" ? item.content[0]?.text : response.error)

const message = await client.POST("/v1/messages", { body: { model: "m", max_tokens: 8, messages } })
const block = message.data && "content" in message.data ? message.data.content[0] : undefined
say(block?.type === "text" ? block.text : message.error)
