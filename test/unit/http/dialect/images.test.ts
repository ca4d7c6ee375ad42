import { assert, describe, it } from "@effect/vitest"
import { maxImages, maxPixels, maxSide, readImage } from "../../../../src/http/dialect/images.ts"
import { nativeChat, nativeGenerate } from "../../../../src/http/dialect/native/dialect.ts"
import { openaiChat } from "../../../../src/http/dialect/openai/dialect.ts"
import { picture, pictures } from "../../../support/pictures.ts"
import { decoding } from "../decoding.ts"

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

  it("when an image has a side of 0, then it is refused", () => {
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
