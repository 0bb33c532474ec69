// Calls to the service's API; errors have the message of the problem document.

// status: 0 if the server did not answer. retryAfter: seconds; null if the server gave none.
export class Problem extends Error {
  constructor(status, detail, retryAfter = null) {
    super(detail);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

let credentials = () => ({});

// headers(): returns the headers with the caller's key, which are added to every request.
export function authenticate(headers) {
  credentials = headers;
}

export function get(path, parameters = {}) {
  const query = new URLSearchParams(
    Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== ""),
  ).toString();
  return send(query ? `${path}?${query}` : path, { headers: { Accept: "application/json" } }).then((response) => response.json());
}

export function post(path, body, { signal, headers = {} } = {}) {
  return send(path, { method: "POST", signal, body: JSON.stringify(body), headers: { Accept: "application/json", "Content-Type": "application/json", ...headers } });
}

async function send(path, request) {
  let response;
  try {
    response = await fetch(path, { ...request, headers: { ...request.headers, ...credentials() } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "The server does not answer.");
  }
  if (response.ok) return response;
  const { detail } = await response.json().catch(() => ({}));
  const seconds = Number(response.headers.get("Retry-After"));
  throw new Problem(response.status, detail || `The server answered ${response.status}.`, seconds > 0 ? seconds : null);
}

export const run = (id, rest = "") => `/v1/runs/${encodeURIComponent(id)}${rest}`;
