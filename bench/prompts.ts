/**
 * How far the gateway's estimate of a prompt is from a tokenizer's count: `node bench/prompts.ts`.
 *
 * The tokenizers are OpenAI's public ones (`js-tiktoken`);
 * o200k is close to what current open models have, cl100k to those of two years ago. The corpus is this repository
 * and a paragraph each in ten languages, cut to prompts of three sizes. Only the text is compared: no templates.
 */
import { readdirSync, readFileSync } from "node:fs"
import * as path from "node:path"
import { getEncoding } from "js-tiktoken"
import { tokensOfBytes } from "../src/domain/Usage.ts"

const root = path.resolve(import.meta.dirname, "..")
const filesIn = (folder: string, ending: string): string =>
  readdirSync(path.join(root, folder), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(ending))
    .map((name) => readFileSync(path.join(root, folder, name), "utf8"))
    .join("\n")

const corpus: Readonly<Record<string, string>> = {
  "English prose": readFileSync(path.join(root, "README.md"), "utf8"),
  TypeScript: filesIn("src/pipeline", ".ts") + filesIn("src/http", ".ts"),
  "JSON, indented": readFileSync(path.join(root, "package.json"), "utf8").repeat(3),
  Base64: readFileSync(path.join(root, "README.md")).toString("base64").slice(0, 8000),
  Digits: Array.from({ length: 2000 }, (_, i) => (i * 7919) % 100_003).join(" "),
  German:
    "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft und Gewissen begabt und sollen einander im Geist der Brüderlichkeit begegnen. Jeder hat Anspruch auf die in dieser Erklärung verkündeten Rechte und Freiheiten ohne irgendeinen Unterschied.",
  French:
    "Tous les êtres humains naissent libres et égaux en dignité et en droits. Ils sont doués de raison et de conscience et doivent agir les uns envers les autres dans un esprit de fraternité. Chacun peut se prévaloir de tous les droits et de toutes les libertés proclamés.",
  Polish:
    "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw. Są oni obdarzeni rozumem i sumieniem i powinni postępować wobec innych w duchu braterstwa. Każdy człowiek posiada wszystkie prawa i wolności bez względu na różnice.",
  Russian:
    "Все люди рождаются свободными и равными в своем достоинстве и правах. Они наделены разумом и совестью и должны поступать в отношении друг друга в духе братства. Каждый человек должен обладать всеми правами и всеми свободами.",
  Chinese:
    "人人生而自由,在尊严和权利上一律平等。他们赋有理性和良心,并应以兄弟关系的精神相对待。人人有资格享有本宣言所载的一切权利和自由,不分种族、肤色、性别、语言、宗教、政治或其他见解。",
  Japanese:
    "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。人間は、理性と良心とを授けられており、互いに同胞の精神をもって行動しなければならない。",
  Korean:
    "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다. 인간은 천부적으로 이성과 양심을 부여받았으며 서로 형제애의 정신으로 행동하여야 한다.",
  Arabic:
    "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق، وقد وهبوا عقلا وضميرا وعليهم أن يعامل بعضهم بعضا بروح الإخاء.",
  Hindi:
    "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है। उन्हें बुद्धि और अन्तरात्मा की देन प्राप्त है और परस्पर उन्हें भाईचारे के भाव से बर्ताव करना चाहिए।",
  Emoji: "🎉🚀 great job 👏🏽 see you tomorrow 🌧️☔ and bring 🍕🍕 for 5 👨‍👩‍👧 😀😂🥲"
}

const percent = (ratio: number): string => `${ratio >= 1 ? "+" : ""}${((ratio - 1) * 100).toFixed(0)} %`
const encodings = [getEncoding("o200k_base"), getEncoding("cl100k_base")]

for (const [name, text] of Object.entries(corpus)) {
  const columns = encodings.map((encoding) => {
    const ratios = [400, 2000, 8000].flatMap((size) => {
      const pieces = Array.from({ length: Math.min(20, Math.ceil(text.length / size)) }, (_, i) =>
        text.slice(i * size, (i + 1) * size)
      )
      return pieces
        .filter((piece) => piece.length >= Math.min(size, text.length) / 2)
        .map((piece) => tokensOfBytes(Buffer.byteLength(piece)) / encoding.encode(piece).length)
    })
    const mean = ratios.reduce((sum, ratio) => sum + ratio, 0) / ratios.length
    return `${percent(mean).padStart(7)} (${percent(Math.min(...ratios))} to ${percent(Math.max(...ratios))})`
  })
  process.stdout.write(`${name.padEnd(16)} o200k ${columns.join("   cl100k ")}\n`)
}
