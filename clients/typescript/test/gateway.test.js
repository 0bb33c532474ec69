// Run by tests/services/gateway/test_typescript.py against a real gateway: KBQA_GATEWAY_URL, KBQA_GATEWAY_API_KEY.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Gateway, GatewayError } from "kbqa-client";

const url = process.env.KBQA_GATEWAY_URL;
const gateway = new Gateway({ url, apiKey: process.env.KBQA_GATEWAY_API_KEY });
const ASKED = { question: "Who starred in Big?", kg: "films" };

const failure = async (call) => {
  const error = await call.then(() => assert.fail("it succeeded"), (caught) => caught);
  assert.ok(error instanceof GatewayError, String(error));
  return error;
};

test("a question is answered, and its answer can be read again and judged", async () => {
  const answer = await gateway.answer(ASKED, { idempotencyKey: "typescript-1" });
  assert.deepEqual(answer.answers.map((one) => one.label).sort(), ["Elizabeth Perkins", "Tom Hanks"]);
  assert.equal(answer.status, "answered");
  assert.equal((await gateway.answer(ASKED, { idempotencyKey: "typescript-1" })).id, answer.id);
  assert.equal((await gateway.read(answer.id)).question, ASKED.question);
  assert.match(await gateway.feedback({ answer_id: answer.id, verdict: "right" }), /./);
});

test("a stream ends with the document", async () => {
  const seen = [];
  for await (const event of gateway.stream(ASKED, { fresh: true })) {
    seen.push(event.event);
    if (event.event === "done") {
      assert.equal(event.document.answers.length, 2);
    }
  }
  assert.equal(seen[0], "linked");
  assert.ok(seen.includes("thought") && seen.includes("observation"));
  assert.equal(seen.at(-1), "done");
});

test("a stream can be left early", async () => {
  for await (const event of gateway.stream(ASKED, { fresh: true })) {
    assert.equal(event.event, "linked");
    break;
  }
  assert.equal((await gateway.answer(ASKED)).status, "answered");
});

test("graphs and policies are listed", async () => {
  assert.ok((await gateway.graphs()).some((graph) => graph.name === "films"));
  assert.ok("policies" in (await gateway.policies("films")));
});

test("every line of a batch gets one answer", async () => {
  const batch = await gateway.sendBatch([{ ...ASKED, id: "a" }, { ...ASKED, kg: "none", id: "b" }]);
  while ((await gateway.batch(batch.id)).state === "running") {
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  const found = new Map();
  for await (const line of gateway.batchAnswers(batch.id)) {
    found.set(line.id, line.answer ? line.answer.status : line.error.status);
  }
  assert.deepEqual(Object.fromEntries(found), { a: "answered", b: 404 });
  assert.ok((await gateway.batches()).some((one) => one.id === batch.id));
  await gateway.deleteBatch(batch.id);
  assert.equal((await failure(gateway.batch(batch.id))).status, 404);
});

test("errors say what to do", async () => {
  const unknown = await failure(gateway.answer({ ...ASKED, kg: "none" }));
  assert.deepEqual([unknown.status, unknown.kind], [404, "graph-not-found"]);
  const denied = await failure(new Gateway({ url, apiKey: "wrong" }).graphs());
  assert.equal(denied.status, 401);
  const away = await failure(new Gateway({ url: "http://127.0.0.1:9" }).graphs());
  assert.equal(away.status, 0);
  assert.match(away.message, /no gateway answers at http:\/\/127\.0\.0\.1:9 .*kbqa up/);
  const streamed = await failure(gateway.stream({ ...ASKED, kg: "none" }).next());
  assert.equal(streamed.kind, "graph-not-found");
});

test("a call that is aborted rejects with the caller's own error", async () => {
  const call = gateway.answer(ASKED, { fresh: true, signal: AbortSignal.abort() });
  await assert.rejects(call, { name: "AbortError" });
});
