// Server-sent events of a POST request, which EventSource does not support.

import { Problem } from "./api.js";

// Yields the parsed data of each event; throws if the connection ends before `done` or `error`.
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read().catch(broken);
      if (done) broken();
      const blocks = (rest + value).split(/\r?\n\r?\n/);
      rest = blocks.pop();
      for (const block of blocks) {
        const data = block.split(/\r?\n/).filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trimStart()).join("\n");
        if (!data) continue; // a comment that keeps the connection alive
        const event = JSON.parse(data);
        yield event;
        if (event.event === "done" || event.event === "error") return;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function broken(error) {
  if (error?.name === "AbortError") throw error;
  throw new Problem(0, "The connection was lost before the answer was complete.");
}
