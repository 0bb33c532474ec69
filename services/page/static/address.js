// What is shown stands in the address, so that a link shows it to somebody else.

export function read() {
  const match = location.pathname.match(/^\/runs\/([^/]+)\/?$/);
  let run = null;
  try {
    run = match && decodeURIComponent(match[1]);
  } catch { /* a broken escape: no run has such a name */ }
  return { run, ...Object.fromEntries(new URLSearchParams(location.search)) };
}

export function href(run, parameters = {}) {
  const query = new URLSearchParams(
    Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== ""),
  ).toString();
  return `/runs/${encodeURIComponent(run)}${query ? `?${query}` : ""}`;
}

// Change the address without leaving the page; the page shows what it says.
export function go(url) {
  note(url);
  window.dispatchEvent(new Event("addresschange"));
}

// Write into the address what is shown already; `instead` adds no step to the way back.
export function note(url, { instead = false } = {}) {
  if (url !== location.pathname + location.search) history[instead ? "replaceState" : "pushState"](null, "", url);
}
