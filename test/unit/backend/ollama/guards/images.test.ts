import { crc32 } from "node:zlib"
import { assert, describe, it } from "@effect/vitest"
import { maxImages, maxPixels, maxSide, readImage } from "../../../../../src/backend/ollama/guards/images.ts"
import { nativeChat, nativeGenerate } from "../../../../../src/http/dialect/native/dialect.ts"
import { openaiChat } from "../../../../../src/http/dialect/openai/dialect.ts"
import { decodablePng, picture, pictures } from "../../../../support/pictures.ts"
import { decoding } from "../../../http/decoding.ts"

const native = decoding(nativeChat)
const generate = decoding(nativeGenerate)
const openai = decoding(openaiChat)
const chatWith = (...images: ReadonlyArray<string>) => ({
  model: "m",
  messages: [{ role: "user", content: "", images }]
})
const openaiWith = (...images: ReadonlyArray<string>) => ({
  model: "m",
  messages: [
    {
      role: "user",
      content: images.map((image) => ({ type: "image_url", image_url: { url: `data:;base64,${image}` } }))
    }
  ]
})

describe("images", () => {
  for (const [kind, make] of Object.entries(pictures)) {
    it(`when a ${kind} image says its size, then up to ${maxPixels} pixels are accepted on both surfaces`, () => {
      assert.deepInclude(readImage(Buffer.from(make(640, 480), "base64")), { width: 640, height: 480 })
      for (const { accepted, refused, body } of [
        { ...native, body: chatWith },
        { ...openai, body: openaiWith }
      ]) {
        accepted(body(make(4096, 4096)))
        assert.match(
          refused(body(make(4096, 4097))),
          /expected a PNG, JPEG or WebP image of 1 to 16777216 pixels, and at most 8192 a side/
        )
      }
      assert.include(
        generate.refused({ model: "m", prompt: "p", images: [make(4096, 4097)] }),
        "images.0: expected"
      )
    })
  }

  it("when an image has many megabytes, then it is read as any other: a pattern with a group would overflow V8's stack", () => {
    const start = Buffer.from(pictures.jpeg(640, 480), "base64")
    const large = Buffer.concat([start, Buffer.alloc(16 * 1024 * 1024 + (3 - (start.length % 3)))]).toString(
      "base64"
    )
    native.accepted(chatWith(large))
    openai.accepted(openaiWith(large))
    for (const malformed of [`${large}A`, `${large.slice(0, -4)}A===`, `${large.slice(0, -1)}!`])
      assert.include(native.refused(chatWith(malformed)), "expected base64")
  })

  it("when an image has a side of 0, then it is refused: a projector's runner ends on it", () => {
    for (const kind of ["png", "jpeg", "webp, lossy"] as const) {
      for (const [width, height] of [
        [0, 1],
        [1, 0],
        [0, 0]
      ] as const)
        assert.include(native.refused(chatWith(pictures[kind](width, height))), "expected a PNG", kind)
    }
  })

  it("when an image has a side beyond the bound, then it is refused: a runner ends on some of these", () => {
    const { png } = pictures
    for (const [width, height] of [
      [1, 1],
      [1, maxSide],
      [2048, maxSide],
      [maxSide, 2048]
    ] as const) {
      native.accepted(chatWith(png(width, height)))
    }
    for (const [width, height] of [
      [1, maxSide + 1],
      [1, 60_000],
      [60_000, 1],
      [4_294_967_295, 4_294_967_295]
    ] as const) {
      assert.include(native.refused(chatWith(png(width, height))), "8192 a side", `${width} by ${height}`)
      assert.include(openai.refused(openaiWith(png(width, height))), "8192 a side")
    }
  })

  it("when a JPEG declares two sizes, then it is refused", () => {
    const [one, two] = [64, 60_000].map((side) => Buffer.from(pictures.jpeg(side, 64), "base64"))
    const frame = two?.subarray(11, -6) ?? Buffer.alloc(0)
    const end = Buffer.from([0xff, 0xda, 0, 2, 0xff, 0xd9])
    const declaring = (...frames: ReadonlyArray<Buffer>) =>
      chatWith(Buffer.concat([one?.subarray(0, -6) ?? frame, ...frames, end]).toString("base64"))
    native.accepted(declaring())
    assert.include(native.refused(declaring(frame)), "expected a PNG")
  })

  it("when a PNG or a JPEG is cut off or changed, then the request says that it is not complete", () => {
    const isComplete = (bytes: Buffer): boolean => readImage(bytes)?.complete === true
    for (const complete of [
      Buffer.from(decodablePng(64, 64), "base64"),
      Buffer.from(pictures.jpeg(64, 64), "base64")
    ]) {
      assert.isTrue(isComplete(complete))
      assert.isTrue(isComplete(Buffer.concat([complete, Buffer.from("and more")])))
      for (let length = 0; length < complete.length - 2; length += 1)
        assert.isFalse(isComplete(complete.subarray(0, length)), `${length} bytes`)
    }
    const png = Buffer.from(decodablePng(64, 64), "base64")
    for (let at = 0; at < png.length - 2; at += 1) {
      const changed = Buffer.from(png)
      changed[at] = (changed[at] ?? 0) ^ 0x10
      assert.isFalse(isComplete(changed), `byte ${at}`)
    }
    const cut = png.subarray(0, 40).toString("base64")
    const [jpeg, webp] = [pictures.jpeg(3, 4), pictures["webp, lossy"](5, 6)]
    assert.deepStrictEqual(native.accepted(chatWith(cut, jpeg, webp)).images, [
      { format: "png", width: 64, height: 64, complete: false },
      { format: "jpeg", width: 3, height: 4, complete: true },
      { format: "webp", width: 5, height: 6, complete: true }
    ])
  })

  it("when a PNG has more chunks than any writer makes, then they are not all read, and it is not complete", () => {
    const png = Buffer.from(decodablePng(64, 64), "base64")
    const empty = Buffer.alloc(12)
    empty.write("tEXt", 4, "latin1")
    empty.writeUInt32BE(crc32("tEXt"), 8)
    const withChunks = (count: number) =>
      readImage(
        Buffer.concat([png.subarray(0, 33), Buffer.concat(Array(count).fill(empty)), png.subarray(33)])
      )
    assert.strictEqual(withChunks(65_000)?.complete, true)
    assert.strictEqual(withChunks(66_000)?.complete, false)
  })

  it("when texts name images more often than the bound, wherever they stand, then it is refused", () => {
    const tags = (count: number) => "[img-0]".repeat(count)
    const message = (content: string) => ({ role: "user", content, images: [picture] })
    native.accepted({ model: "m", messages: [message(tags(maxImages))] })
    const tool = (description: string) => ({
      type: "function",
      function: { name: "f", parameters: { type: "object", properties: { a: { description } } } }
    })
    for (const body of [
      { messages: [message(tags(maxImages + 1))] },
      { messages: [message(tags(20)), { role: "assistant", content: tags(13) }] },
      { messages: [message("")], tools: [tool(tags(maxImages + 1))] }
    ]) {
      assert.include(native.refused({ model: "m", ...body }), `at most ${maxImages} tags like [img-0]`)
    }
    assert.include(
      generate.refused({ model: "m", prompt: "", system: tags(maxImages + 1), images: [picture] }),
      `at most ${maxImages} tags like [img-0]`
    )
    // Without an image there is nothing to put there.
    native.accepted({ model: "m", messages: [{ role: "user", content: tags(maxImages + 1) }] })
  })

  it("when bytes are no image that the model server decodes, then they are refused", () => {
    const bytes = ["GIF89a", "BM", "hi", "", "RIFF0000AVI ", "\x89PNG\r\n\x1a\n", "<svg"].map((text) =>
      Buffer.from(text.padEnd(40, "\0"), "latin1").toString("base64")
    )
    for (const image of [...bytes, "", "aGk=", pictures.jpeg(1, 1).slice(0, 20)]) {
      assert.include(native.refused(chatWith(image)), "messages.0.images.0: expected a PNG", image)
    }
    native.accepted(chatWith(Buffer.from("RIFF0000WAVE").toString("base64")))
  })

  it("when a request has more images than the bound, in however many messages, then it is refused", () => {
    const messages = (count: number) =>
      Array.from({ length: count }, () => ({ role: "user", content: "", images: [picture] }))
    native.accepted({ model: "m", messages: messages(maxImages) })
    for (const sentence of [
      native.refused({ model: "m", messages: messages(maxImages + 1) }),
      openai.refused(openaiWith(...Array.from({ length: maxImages + 1 }, () => picture)))
    ]) {
      assert.strictEqual(sentence, `images: expected at most ${maxImages} in one request`)
    }
  })

  it("when an image is large, then it is estimated by its pixels", () => {
    const estimate = (image: string) => native.accepted(chatWith(image)).promptEstimate
    assert.strictEqual(estimate(pictures.png(1, 1)), 8 + 1024)
    assert.strictEqual(estimate(pictures.png(2800, 2800)), 8 + 10_000)
  })
})
