/** One answer: asks, shows what comes, and says how it ended. */
import { announce, Speaker } from "./announce.js"
import { ask, problemOf } from "./ask.js"
import { $, atEnd, element, toEnd } from "./dom.js"
import { number, span } from "./figures.js"
import { bodyBytes } from "./images.js"
import { MarkdownView } from "./MarkdownView.js"
import { showUsage } from "./meters.js"
import { explain } from "./problems.js"
import { framesOf } from "./surfaces.js"
import { assistantTurn, reasoningBox, waitingLine } from "./turns.js"

/** The next screen frame, or soon when the page is hidden and has none. */
const nextFrame = () =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, 250)
    requestAnimationFrame((at) => {
      clearTimeout(timer)
      resolve(at)
    })
  })

/** Draws once a frame while something comes; a slow drawing is followed by a longer pause. */
const drawing = (draw) => {
  let [running, ended, wanted] = [undefined, false, false]
  const loop = async () => {
    do {
      wanted = false
      await nextFrame()
      const began = performance.now()
      if (draw(ended)) wanted = true
      const took = performance.now() - began
      if (took > 12) await new Promise((resolve) => setTimeout(resolve, took * 2))
    } while (wanted)
    running = undefined
  }
  const want = () => {
    wanted = true
    running ??= loop()
  }
  const finish = async () => {
    ended = true
    want()
    await running
  }
  return { want, finish }
}

const tooLarge = (body) => {
  const bytes = new TextEncoder().encode(body).length
  return bytes <= bodyBytes
    ? undefined
    : {
        type: "payload_too_large",
        message: `The request has ${number(bytes)} bytes, and the gateway takes ${number(bodyBytes)}. It was not sent.`
      }
}

/** What the gateway changed or doubts about the request. */
const warningsOf = (headers) => {
  const relaxed = headers.get("x-schema-relaxed")
  return [
    ...(headers.has("x-prompt-truncated")
      ? ["The conversation is probably longer than the model can see: its beginning may be cut off."]
      : []),
    ...(relaxed === null ? [] : [`The model server does not follow these parts of the schema: ${relaxed}.`])
  ]
}

/** Says that the answer has not begun, after a moment, and for how long. */
const startWaiting = (line) => {
  const began = performance.now()
  let why = "Waiting for the model server: in its queue, or reading the prompt."
  const show = () => {
    const seconds = Math.round((performance.now() - began) / 1000)
    if (seconds > 0) line.lastChild.textContent = `${why} ${seconds} s`
    return seconds
  }
  const timer = setInterval(() => {
    if (show() === 3) announce("Still waiting for the model server.")
  }, 1000)
  return {
    /** The gateway has said how long the request was in the queue, so it is there no more. */
    queued: (ms) => {
      why = ms >= 1 ? `${span(ms)} in the queue. The model reads the prompt.` : "The model reads the prompt."
      show()
    },
    stop: () => {
      clearInterval(timer)
      line.remove()
    }
  }
}

const addCall = (calls, call) => {
  // A later part of a call has no name: it goes on with the arguments of the last one.
  if (call.name === undefined && calls.length > 0) calls.at(-1).arguments += call.arguments
  else calls.push({ ...call, id: call.id ?? `call_${calls.length}` })
}

/** What came, how it ended and what it cost; `problem` is there when it went wrong. It goes on from what has `begun`. */
export const runAnswer = async ({ adapter, body, asJson, model, signal, into, begun }) => {
  const node = assistantTurn(model)
  const waiting = waitingLine()
  node.append(waiting)
  into.append(node)
  toEnd()
  announce("Sent.")
  const wait = startWaiting(waiting)

  const { content = "", thinking = "" } = begun ?? {}
  const [view, speaker, started] = [new MarkdownView(), new Speaker(content.length), performance.now()]
  /** @type {any} */
  const got = { node, content, thinking, calls: [], pieces: 0 }
  /** @type {ReturnType<typeof reasoningBox> | undefined} */
  let reasoning
  /** @type {number | undefined} */
  let firstAt
  /** @type {any} */
  let problem
  if (asJson) view.push("~~~~~~~~~~json\n")
  view.push(content)

  const { want, finish } = drawing((ended) => {
    const follow = atEnd()
    if (got.thinking !== "" && reasoning === undefined) {
      reasoning = reasoningBox()
      node.append(reasoning.node)
    }
    if (reasoning !== undefined) {
      const { text } = reasoning
      if (text.length < got.thinking.length) text.appendData(got.thinking.slice(text.length))
      if (got.content !== "") reasoning.title("Reasoning")
    }
    if (got.content !== "" && !view.node.isConnected) node.append(view.node)
    const more = view.step(ended)
    const seconds = (performance.now() - (firstAt ?? started)) / 1000
    const speed = got.pieces > 1 && seconds > 0.5 ? ` · ${(got.pieces / seconds).toFixed(0)} / s` : ""
    if (firstAt !== undefined) $("live").textContent = `${number(got.pieces)} tokens${speed}`
    speaker.hear(got.content)
    if (follow) toEnd()
    return more
  })
  if (begun !== undefined) want()

  const take = (frame) => {
    if (frame.problem) problem = { type: "incomplete", ...frame.problem, status: frame.problem.code }
    if (frame.text || frame.thinking || frame.calls) {
      got.pieces += 1
      firstAt ??= performance.now()
      wait.stop()
    }
    got.content += frame.text ?? ""
    if (frame.text) view.push(frame.text)
    got.thinking += frame.thinking ?? ""
    for (const call of frame.calls ?? []) addCall(got.calls, call)
    got.ended = frame.ended ?? got.ended
    got.tokensIn = frame.tokensIn ?? got.tokensIn
    got.tokensOut = frame.tokensOut ?? got.tokensOut
  }

  try {
    const text = JSON.stringify(body)
    problem = tooLarge(text)
    if (problem === undefined) {
      const headers = { "content-type": "application/json" }
      const response = await ask(adapter.path, { method: "POST", headers, body: text, signal })
      got.requestId = response.headers.get("x-request-id") ?? undefined
      got.warnings = warningsOf(response.headers)
      got.queuedMs = Number(response.headers.get("x-queue-wait-ms") ?? 0)
      wait.queued(got.queuedMs)
      showUsage(response.headers)
      if (response.ok) {
        for await (const frames of framesOf(response, adapter)) {
          for (const frame of frames) take(frame)
          want()
        }
        if (got.ended === undefined && problem === undefined)
          problem = { type: "incomplete", message: "The connection closed before the answer was complete." }
      } else problem = await problemOf(response)
    }
  } catch (error) {
    const type = firstAt === undefined ? "unreachable" : "incomplete"
    if (signal.aborted) got.ended = "stopped"
    else problem = { type, message: String(error.message) }
  }
  if (problem !== undefined) problem = { requestId: got.requestId, ...problem }
  const allMs = performance.now() - started
  const firstMs = firstAt === undefined ? undefined : firstAt - started
  wait.stop()
  await finish()

  $("live").textContent = ""
  if (problem !== undefined) speaker.end(got.content, `${explain(problem).title}. ${explain(problem).advice}`)
  else if (got.ended === "stopped") speaker.end(got.content, "Stopped.")
  else speaker.end(got.content, got.calls.length > 0 ? "The model calls a tool." : "End of the answer.")
  if (reasoning !== undefined) reasoning.title("Reasoning")
  if (got.content === "" && got.thinking === "" && got.calls.length === 0 && problem === undefined)
    node.append(
      element(
        "p",
        "note",
        got.ended === "stopped" ? "Stopped before the first word." : "The model answered with nothing."
      )
    )
  return { ...got, allMs, firstMs, problem }
}
