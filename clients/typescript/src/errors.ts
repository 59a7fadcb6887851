/**
 * The only error of this client. `type` is for programs: a class of afterturn's errors, such as `NotFound`, or one of
 * the client itself: `ConnectionFailed`, `DeadlineExceeded`, `HttpError` for an answer that is not from afterturn.
 */
export class AfterturnError extends Error {
  override readonly name = "AfterturnError";
  readonly type: string;
  /** The status of the answer, or 0 without an answer. */
  readonly status: number;
  /** After how many seconds the server wants the request to be repeated, if it says so. */
  readonly retryAfter: number | null;

  constructor(
    type: string,
    message: string,
    { status = 0, retryAfter = null, cause }: { status?: number; retryAfter?: number | null; cause?: unknown } = {},
  ) {
    super(message, cause === undefined ? undefined : { cause });
    this.type = type;
    this.status = status;
    this.retryAfter = retryAfter;
  }

  /** Whether the same request may succeed later: no answer, too many requests, or a server that cannot answer now. */
  get isTemporary(): boolean {
    return this.status === 0 || [429, 502, 503, 504].includes(this.status);
  }
}

/** The error that an answer with another status than 2xx stands for. Reads the body. */
export async function errorOf(response: Response, url: string): Promise<AfterturnError> {
  const status = response.status;
  const retryAfter = Number(response.headers.get("retry-after") ?? Number.NaN);
  const more = { status, retryAfter: retryAfter >= 0 ? retryAfter : null };
  if (response.type === "opaqueredirect" || (status >= 300 && status < 400)) {
    const target = response.headers.get("location");
    const where = target === null ? "another address" : new URL(target, url).origin;
    return new AfterturnError("HttpError", `${url} redirects to ${where}. Pass that address as \`url\`.`, more);
  }
  const text = await response.text();
  try {
    const { type, message } = JSON.parse(text).error;
    if (typeof type === "string" && typeof message === "string") return new AfterturnError(type, message, more);
  } catch {
    // A proxy in between, or another server, has answered.
  }
  const said = text.slice(0, 200).trim();
  return new AfterturnError("HttpError", `${url} answered ${status} ${response.statusText}: ${said}`, more);
}
