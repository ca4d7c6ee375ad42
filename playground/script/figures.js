/** Numbers and durations in words. */

export const number = (value) => value.toLocaleString("en-US")

export const span = (ms) => (ms < 50 ? "< 0.1 s" : `${(ms / 1000).toFixed(1)} s`)

/** Whole seconds as people say them, with two units at most. */
export const duration = (seconds) => {
  const s = Math.max(0, Math.ceil(seconds))
  if (s < 90) return `${s} s`
  const minutes = Math.round(s / 60)
  if (minutes < 60) return `${minutes} min`
  const hours = Math.floor(minutes / 60)
  if (hours < 48) return minutes % 60 === 0 ? `${hours} h` : `${hours} h ${minutes % 60} min`
  const days = Math.floor(hours / 24)
  return hours % 24 === 0 ? `${days} days` : `${days} days ${hours % 24} h`
}

export const percent = (share) =>
  share > 0 && share < 0.005 ? "< 1 %" : `${share > 0.99 && share < 1 ? 99 : Math.round(share * 100)} %`
