/** Images to send: chosen, pasted or dropped, and made small enough here, so that no large file leaves the page. */
import { announce } from "./announce.js"
import { $, button, element, touch } from "./dom.js"
import { can } from "./models.js"

/** What the gateway takes in one request body. */
export const bodyBytes = Number(document.body.dataset.bodyBytes) || 262_144

const sides = [1568, 1280, 1024, 768, 512, 384, 256]
const qualities = [0.85, 0.7, 0.5]
/** Some models cannot take less. */
const minSide = 32

let attached = []

/** A JPEG of at most `maxLength` characters as a data URL, or undefined. */
const shrink = async (file, maxLength) => {
  const bitmap = await createImageBitmap(file, { imageOrientation: "from-image" })
  const canvas = element("canvas")
  for (const side of sides) {
    const scale = Math.min(1, side / Math.max(bitmap.width, bitmap.height))
    canvas.width = Math.max(minSide, Math.round(bitmap.width * scale))
    canvas.height = Math.max(minSide, Math.round(bitmap.height * scale))
    const context = canvas.getContext("2d")
    context.fillStyle = "#fff"
    context.fillRect(0, 0, canvas.width, canvas.height)
    context.drawImage(bitmap, 0, 0, canvas.width, canvas.height)
    for (const quality of qualities) {
      const url = canvas.toDataURL("image/jpeg", quality)
      if (url.length <= maxLength) return url
    }
  }
  return undefined
}

export const thumbnail = (url, label) => {
  const picture = element("img")
  picture.src = url
  picture.alt = label
  return picture
}

const show = () => {
  const list = $("attached")
  list.hidden = attached.length === 0
  list.replaceChildren(
    ...attached.map((url, index) => {
      const label = `Image ${index + 1}`
      const remove = button({
        label: `Remove image ${index + 1}`,
        name: "close",
        className: "only",
        press: () => {
          attached = attached.filter((other) => other !== url)
          show()
          $(attached.length === 0 ? "prompt" : "attach").focus()
        }
      })
      return element("li", "", thumbnail(url, label), remove)
    })
  )
}

const note = (text) => {
  $("live").textContent = text
  announce(text)
}

/** `used` says how many bytes the conversation has already. */
const add = async (files, used) => {
  const images = [...files].filter(({ type }) => type.startsWith("image/"))
  if (images.length === 0) return
  if (!can("vision")) return note("This model cannot see images. Choose one that can.")
  for (const [index, file] of images.entries()) {
    const left = bodyBytes - used() - attached.join("").length - 16_384
    const room = Math.min(left / (images.length - index), bodyBytes * 0.6)
    const url = await shrink(file, room).catch(() => undefined)
    if (url === undefined) {
      note(
        room < 16_384
          ? "No room for another image: the request would be too large."
          : `${file.name || "This file"} is no image that can be read here.`
      )
    } else attached.push(url)
    show()
  }
}

export const takeImages = () => {
  const taken = attached
  attached = []
  show()
  return taken
}

/** For a model that cannot see, the button is not there. */
export const showImageButton = () => {
  $("attach").hidden = !can("vision")
}

export const startImages = (used) => {
  $("attach").addEventListener("click", () => $("file").click())
  $("file").addEventListener("change", async () => {
    await add($("file").files, used)
    $("file").value = ""
    if (!touch.matches) $("prompt").focus()
  })
  $("prompt").addEventListener("paste", (event) => {
    if (event.clipboardData.files.length === 0) return
    event.preventDefault()
    void add(event.clipboardData.files, used)
  })
  for (const type of ["dragover", "dragleave", "drop"])
    document.addEventListener(type, (/** @type {any} */ event) => {
      if (!event.dataTransfer?.types.includes("Files")) return
      event.preventDefault()
      $("composer").classList.toggle("dropping", type === "dragover")
      if (type === "drop") void add(event.dataTransfer.files, used)
    })
}
