/** The settings: beside the conversation, or on a narrow screen in a sheet above it. */
import { $, narrow } from "./dom.js"

const sheet = $("sheet")

const place = () => {
  if (!narrow.matches && sheet.open) sheet.close()
  $(narrow.matches ? "sheet" : "side").append($("options"))
}

export const openSettings = () => {
  if (narrow.matches && !sheet.open) sheet.showModal()
}

/** A press on what is behind a dialog closes it. The browser then gives the focus back. */
export const startDialog = (dialog, close) => {
  close.addEventListener("click", () => dialog.close())
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close()
  })
}

place()
narrow.addEventListener("change", place)
startDialog(sheet, $("close-sheet"))
for (const id of ["show-settings", "chip"]) $(id).addEventListener("click", openSettings)
