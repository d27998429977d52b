// How does the page ask? JSON over fetch; an error is shown with the server's sentence and its place.

export class Refused extends Error {
  constructor(status, body) {
    super(body?.error?.message || `HTTP ${status}`);
    this.status = status;
    this.line = body?.error?.line || 0;
    this.column = body?.error?.column || 0;
  }
}

async function answer(response) {
  const type = response.headers.get("Content-Type") || "";
  const body = type.startsWith("application/json") ? await response.json() : { error: { message: await response.text() } };
  if (!response.ok) throw new Refused(response.status, body);
  return body;
}

export async function get(path, query) {
  const filled = Object.entries(query || {}).filter(([, value]) => value !== "" && value !== undefined);
  const text = new URLSearchParams(filled).toString();
  return answer(await fetch(`/api/${path}${text ? "?" + text : ""}`));
}

export async function post(path, body) {
  return answer(
    await fetch(`/api/${path}`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
    }),
  );
}
