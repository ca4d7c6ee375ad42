import type { Socket } from "node:net"

/**
 * Stops reading a connection until the returned function is called. Node resumes a connection by itself whenever code reads a
 * request of it, so this undoes every resume.
 *
 * *Gotchas* While a connection is not read, the gateway notices only at its next write that the client has left.
 */
export const stopReading = (socket: Socket): (() => void) => {
  const pause = (): void => void socket.pause()
  pause()
  socket.on("resume", pause)
  return () => {
    socket.off("resume", pause)
    socket.resume()
  }
}
