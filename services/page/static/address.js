// Keeps the state of the page in its URL, so that a link shows the same to others.

export function read() {
  const match = location.pathname.match(/^\/runs\/([^/]+)\/?$/);
  let run = null;
  try {
    run = match && decodeURIComponent(match[1]);
  } catch { /* an invalid escape is not the name of a run */ }
  return { run, ...Object.fromEntries(new URLSearchParams(location.search)) };
}

export function href(run, parameters = {}) {
  const query = new URLSearchParams(
    Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== ""),
  ).toString();
  return `/runs/${encodeURIComponent(run)}${query ? `?${query}` : ""}`;
}

// Changes the URL without leaving the page, and makes the page show it.
export function go(url) {
  note(url);
  window.dispatchEvent(new Event("addresschange"));
}

// Writes the state that is already shown into the URL; `instead` replaces the history's entry.
export function note(url, { instead = false } = {}) {
  if (url !== location.pathname + location.search) history[instead ? "replaceState" : "pushState"](null, "", url);
}
