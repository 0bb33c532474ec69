// The trainer's API; what fails says why in the words of its problem document.

export async function get(path, parameters = {}) {
  const query = new URLSearchParams(
    Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== ""),
  ).toString();
  let response;
  try {
    response = await fetch(query ? `${path}?${query}` : path, { headers: { Accept: "application/json" } });
  } catch {
    throw new Error("the trainer does not answer");
  }
  const body = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(body.detail || `the trainer answered ${response.status}`);
  return body;
}

export const run = (id, rest = "") => `/v1/runs/${encodeURIComponent(id)}${rest}`;
