/** The load of the benchmark knows when an answer is whole, however its bytes come. */
import { assert, it } from "@effect/vitest"
import { ResponseReader } from "../../../bench/gateway/responseReader.ts"

const read = (answer: string, size: number) => {
  const reader = new ResponseReader()
  reader.begin()
  const bytes = Buffer.from(answer)
  const ends: Array<number> = []
  for (let at = 0; at < bytes.length; at += size)
    if (reader.push(bytes.subarray(at, at + size))) ends.push(Math.min(bytes.length, at + size))
  return { reader, ends }
}

const chunked =
  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" +
  "6\r\n0\r\n\r\na\r\n" +
  "3\r\n0\n\n\r\n" +
  "0\r\n\r\n"
const empty = "HTTP/1.1 204 No Content\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
const sized = "HTTP/1.1 503 Busy\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"

for (const size of [1, 2, 3, 7, 1000]) {
  it(`when an answer comes ${size} bytes at a time, then its end is its last byte`, () => {
    for (const answer of [chunked, empty, sized])
      assert.deepStrictEqual(read(answer, size).ends, [answer.length])
  })
}

it("when an answer has a length, then its status is read and whether the connection stays", () => {
  const { reader } = read(sized, 1000)
  assert.deepStrictEqual([reader.status, reader.closes, reader.hasBody], [503, true, true])
})

it("when an answer has no length, then it ends with the connection", () => {
  const { reader, ends } = read("HTTP/1.1 200 OK\r\n\r\nabc", 1000)
  assert.deepStrictEqual([ends, reader.endsWithConnection], [[], true])
})
