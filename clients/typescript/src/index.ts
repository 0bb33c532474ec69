/**
 * A client of a kbqa gateway. Its types are made from the gateway's OpenAPI schema.
 *
 *     const gateway = new Gateway({ url: "http://127.0.0.1:8080" });
 *     const answer = await gateway.answer({ question: "Who directed Heat?", kg: "films" });
 *     for await (const event of gateway.stream({ question: "Who directed Heat?", kg: "films" })) { … }
 */

import { EventSourceParserStream } from "eventsource-parser/stream";
import createClient, { type Client } from "openapi-fetch";

import { errorOf, GatewayError, notAGateway, unreachable } from "./errors.js";
import type { components, paths } from "./schema.js";

export { GatewayError } from "./errors.js";

type Schemas = components["schemas"];
type Body<P extends keyof paths> = paths[P] extends {
  post: { requestBody: { content: { "application/json": infer B } } };
}
  ? B
  : never;

/** A question about a graph. */
export type Question = Omit<Body<"/v1/answer">, "stream">;
/** What users think of an answer. */
export type Feedback = Body<"/v1/feedback">;
/** A line of a batch: a question, and an id that is returned with its answer. */
export type BatchLine = Omit<Question, "session" | "understood"> & { id?: string };
/** The document of an answer, with its evidence. */
export type AnswerDocument = Schemas["AnswerResponse"];
/** A step towards an answer; the last one is `done`, with the document. */
export type StreamEvent = Exclude<Schemas["Event"], { event: "error" }>;
export type Batch = Schemas["BatchModel"];
export type BatchAnswer = Schemas["BatchAnswer"];
export type Graph = Schemas["GraphModel"];
export type Policies = Schemas["PoliciesModel"];

export interface GatewayOptions {
  /** Of the gateway (default: http://127.0.0.1:8080). */
  url?: string;
  /** For a gateway that requires one. */
  apiKey?: string;
  /** Replaces the global `fetch`. */
  fetch?: typeof globalThis.fetch;
}

export interface CallOptions {
  /** Ends the call; the gateway then stops working on the question. */
  signal?: AbortSignal;
  /** Requests with the same key are answered once, however often they are sent. */
  idempotencyKey?: string;
  /** Do not use an earlier answer from the cache. */
  fresh?: boolean;
}

/** What openapi-fetch returns; its types of data lose the length of tuples. */
interface Received {
  data?: unknown;
  error?: unknown;
  response: Response;
}

/** Every method rejects with a `GatewayError`, which says what to do. */
export class Gateway {
  readonly url: string;
  readonly #client: Client<paths>;

  constructor(options: GatewayOptions = {}) {
    this.url = (options.url ?? "http://127.0.0.1:8080").replace(/\/+$/, "");
    this.#client = createClient<paths>({
      baseUrl: this.url,
      ...(options.fetch && { fetch: options.fetch }),
      ...(options.apiKey !== undefined && { headers: { Authorization: `Bearer ${options.apiKey}` } }),
    });
  }

  /** Answer a question about a graph. */
  answer(question: Question, options: CallOptions = {}): Promise<AnswerDocument> {
    return this.#sent(
      this.#client.POST("/v1/answer", { body: { ...question, stream: false }, ...init(options) }),
    );
  }

  /**
   * Every step towards the answer as it happens. Leaving the loop ends the work on the question.
   */
  async *stream(question: Question, options: CallOptions = {}): AsyncGenerator<StreamEvent, void, void> {
    const body = await this.#sent<ReadableStream<Uint8Array>>(
      this.#client.POST("/v1/answer", {
        body: { ...question, stream: true },
        parseAs: "stream",
        ...init(options),
      }),
    );
    const messages = decoded(body).pipeThrough(new EventSourceParserStream());
    for await (const { data } of this.#received(messages)) {
      const event = parsed<Schemas["Event"]>(data, this.url);
      if (event.event === "error") {
        const { status, detail, type } = event.problem;
        throw errorOf(status, detail, type);
      }
      yield event;
    }
  }

  /** An answer that this key received in the last hour or so. */
  read(answerId: string): Promise<AnswerDocument> {
    return this.#sent(
      this.#client.GET("/v1/answers/{answer_id}", { params: { path: { answer_id: answerId } } }),
    );
  }

  /** Say whether an answer was right; resolves with the feedback's id. */
  async feedback(feedback: Feedback): Promise<string> {
    const call = this.#client.POST("/v1/feedback", { body: feedback });
    const receipt = await this.#sent<Schemas["FeedbackReceipt"]>(call);
    return receipt.id;
  }

  /** The graphs that this key may ask about. */
  async graphs(): Promise<Graph[]> {
    return (await this.#sent<Schemas["GraphsModel"]>(this.#client.GET("/v1/kg"))).graphs;
  }

  /** The policy that answers questions about a graph, and the versions that could. */
  policies(kg?: string): Promise<Policies> {
    const query = kg === undefined ? {} : { kg };
    return this.#sent(this.#client.GET("/v1/policies", { params: { query } }));
  }

  /** Send many questions at once, which the gateway answers when it has time. */
  sendBatch(lines: Iterable<BatchLine>, options: CallOptions = {}): Promise<Batch> {
    const { headers, ...rest } = init(options);
    const text = Array.from(lines, (line) => `${JSON.stringify(line)}\n`).join("");
    return this.#sent(
      this.#client.POST("/v1/batches", {
        body: text as never, // the schema describes one line
        bodySerializer: () => text,
        headers: { ...headers, "Content-Type": "application/x-ndjson" },
        ...rest,
      }),
    );
  }

  /** The progress of a batch. */
  batch(batchId: string): Promise<Batch> {
    return this.#sent(this.#client.GET("/v1/batches/{batch_id}", { params: of(batchId) }));
  }

  /** The batches of this key, oldest first. */
  async batches(): Promise<Batch[]> {
    return (await this.#sent<Schemas["BatchesModel"]>(this.#client.GET("/v1/batches"))).batches;
  }

  /**
   * The answers of a batch that are ready, in the order in which they became ready.
   *
   * @param after number of answers to leave out, because you have them already
   */
  async *batchAnswers(batchId: string, after = 0): AsyncGenerator<BatchAnswer, void, void> {
    const body = await this.#sent<ReadableStream<Uint8Array>>(
      this.#client.GET("/v1/batches/{batch_id}/answers", {
        params: { ...of(batchId), query: { after } },
        parseAs: "stream",
      }),
    );
    let rest = "";
    for await (const text of this.#received(decoded(body))) {
      const lines = (rest + text).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) {
        yield parsed<BatchAnswer>(line, this.url);
      }
    }
  }

  /** Begin no further line of a batch; its answers can still be read. */
  cancelBatch(batchId: string): Promise<Batch> {
    return this.#sent(this.#client.POST("/v1/batches/{batch_id}/cancel", { params: of(batchId) }));
  }

  /** Delete a batch and its answers; one that is not done is cancelled first. */
  async deleteBatch(batchId: string): Promise<void> {
    const call = this.#client.DELETE("/v1/batches/{batch_id}", { params: of(batchId) });
    const { response, error } = await call.catch((cause: unknown) => Promise.reject(this.#failure(cause)));
    if (!response.ok) {
      throw refusal(error, response);
    }
  }

  async #sent<T>(call: Promise<Received>): Promise<T> {
    let received: Received;
    try {
      received = await call;
    } catch (cause) {
      throw this.#failure(cause);
    }
    const { data, error, response } = received;
    if (!response.ok) {
      throw refusal(error, response);
    }
    if (data === undefined || data === null) {
      throw notAGateway(response.url, response.status);
    }
    return data as T;
  }

  /** The parts of a body, with errors of the connection as `GatewayError`s. */
  async *#received<T>(stream: ReadableStream<T>): AsyncGenerator<T, void, void> {
    try {
      yield* stream as ReadableStream<T> & AsyncIterable<T>;
    } catch (cause) {
      throw this.#failure(cause);
    }
  }

  /** The caller's own cancellation stays as it is. */
  #failure(cause: unknown): unknown {
    const isAbort = cause instanceof DOMException && cause.name === "AbortError";
    return cause instanceof GatewayError || isAbort ? cause : unreachable(this.url, cause);
  }
}

function init(options: CallOptions): { signal?: AbortSignal; headers: Record<string, string> } {
  return {
    ...(options.signal && { signal: options.signal }),
    headers: {
      ...(options.idempotencyKey !== undefined && { "Idempotency-Key": options.idempotencyKey }),
      ...(options.fresh && { "Cache-Control": "no-cache" }),
    },
  };
}

function of(batchId: string): { path: { batch_id: string } } {
  return { path: { batch_id: batchId } };
}

function decoded(body: ReadableStream<Uint8Array>): ReadableStream<string> {
  return body.pipeThrough(new TextDecoderStream() as TransformStream<Uint8Array, string>);
}

function parsed<T>(text: string, url: string): T {
  try {
    return JSON.parse(text) as T;
  } catch {
    throw notAGateway(url, 200);
  }
}

function refusal(error: unknown, response: Response): GatewayError {
  const { detail, type } = (error ?? {}) as { detail?: unknown; type?: unknown };
  if (typeof detail !== "string" || typeof type !== "string") {
    return notAGateway(response.url, response.status);
  }
  return errorOf(response.status, detail, type, response.headers);
}
