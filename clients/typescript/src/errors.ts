/** Why a call failed; the message says what to do. */
export class GatewayError extends Error {
  override readonly name = "GatewayError";

  constructor(
    message: string,
    /** HTTP status; 0 if there was no response. */
    readonly status: number,
    /** The kind of problem, such as `graph-not-found`; empty if there is none. */
    readonly kind = "",
    /** Seconds after which to try again, if the gateway says so. */
    readonly retryAfterS?: number,
    /** Identifies the request in the gateway's logs; empty if there was no response. */
    readonly requestId = "",
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** The error of a problem document (RFC 9457). */
export function errorOf(status: number, detail: string, type: string, headers?: Headers): GatewayError {
  const kind = type === "about:blank" ? "" : type.slice(type.lastIndexOf(":") + 1);
  const wait = headers?.get("retry-after") ?? "";
  const requestId = headers?.get("x-request-id") ?? "";
  return new GatewayError(detail, status, kind, /^\d+$/.test(wait) ? Number(wait) : undefined, requestId);
}

/** The error for a response that is not from a gateway, or from one of another release. */
export function notAGateway(url: string, status: number): GatewayError {
  return new GatewayError(
    `${url} answered ${status}, but not like a gateway of this release: check the URL and the gateway's version`,
    status,
  );
}

/** The error for a gateway that does not answer. */
export function unreachable(url: string, cause: unknown): GatewayError {
  const inner = cause instanceof Error && cause.cause instanceof Error ? cause.cause : cause;
  const reason = inner instanceof Error ? inner.message || inner.name : String(inner);
  return new GatewayError(
    `no gateway answers at ${url} (${reason}): start one with kbqa up, or check the URL`,
    0,
    "",
    undefined,
    "",
    { cause },
  );
}
