import { assert, describe, it } from "@effect/vitest"
import { maxImages, maxPixels, pixelsOf } from "../../../../src/http/dialect/images.ts"
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
      assert.strictEqual(pixelsOf(make(640, 480)), 640 * 480)
      for (const { accepted, refused, body } of [
        { ...native, body: chatWith },
        { ...openai, body: openaiWith }
      ]) {
        accepted(body(make(4096, 4096)))
        assert.match(
          refused(body(make(4096, 4097))),
          /expected a PNG, JPEG or WebP image of at most 16777216 pixels/
        )
      }
      assert.include(
        generate.refused({ model: "m", prompt: "p", images: [make(4096, 4097)] }),
        "images.0: expected"
      )
    })
  }

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
