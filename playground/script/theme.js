/** Light or dark. It is the only thing that the page keeps. */
import { $ } from "./dom.js"

const name = "tollgate-theme"
const root = document.documentElement
const system = matchMedia("(prefers-color-scheme: dark)")

const kept = () => {
  try {
    return localStorage.getItem(name)
  } catch {
    // A browser may forbid storage; the theme then follows the system.
    return null
  }
}

const keep = (theme) => {
  try {
    localStorage.setItem(name, theme)
  } catch {
    // The theme then lasts as long as the page.
  }
}

const isDark = () => (root.style.colorScheme || (system.matches ? "dark" : "light")) === "dark"
const tell = () => $("theme").setAttribute("aria-pressed", String(isDark()))

const theme = kept()
if (theme === "dark" || theme === "light") root.style.colorScheme = theme
tell()
system.addEventListener("change", tell)
$("theme").addEventListener("click", () => {
  root.style.colorScheme = isDark() ? "light" : "dark"
  keep(root.style.colorScheme)
  tell()
})
