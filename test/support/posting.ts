/** What `fetch` of a test or a lab sends with a key. */
export const posting = (
  secret: string,
  body: unknown,
  headers: Readonly<Record<string, string>> = {}
): { readonly method: "POST"; readonly headers: Record<string, string>; readonly body: string } => ({
  method: "POST",
  headers: { authorization: `Bearer ${secret}`, "content-type": "application/json", ...headers },
  body: JSON.stringify(body)
})
