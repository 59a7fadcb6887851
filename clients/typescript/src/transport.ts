import { AfterturnError, errorOf } from "./errors.js";
import { ROUTES, type Routes } from "./schema.js";

export type RouteName = keyof Routes;

export interface ClientOptions {
  /** The server's address, by default `http://127.0.0.1:7433`. */
  url?: string | undefined;
  /** The token of `afterturn token create`. Not needed if the server was started with `--insecure-local`. */
  token?: string | undefined;
  /** Seconds that one call may take, repeated requests included. Default: 30. */
  timeout?: number;
  /** How often a request is repeated. Default: 3. */
  retries?: number;
  /** Used instead of the global `fetch`. */
  fetch?: typeof globalThis.fetch;
  /**
   * Memory is optional: with this function the verbs that a turn needs throw no error of memory. They report it here
   * and return what they would without memory: no change of the messages, no block, no rules.
   */
  onTurnError?: (error: AfterturnError) => void;
}

export interface CallOptions {
  /** Ends the call. It then throws the signal's reason, also with `onTurnError`. */
  signal?: AbortSignal | undefined;
  /** Seconds for this call instead of the client's. */
  timeout?: number | undefined;
}

type Scalar = string | number | boolean | null;
/** Queries may have dates and objects where the server wants texts. */
export type QueryOf<Name extends RouteName> = {
  [Key in keyof Routes[Name]["query"]]:
    | Routes[Name]["query"][Key]
    | (Key extends "since" | "until" | "as_of" ? Date | number : never)
    | (Key extends "metadata" ? Record<string, Scalar> : never)
    | undefined;
};
export type BodyOf<Name extends RouteName> = Routes[Name]["body"];
export type AnswerOf<Name extends RouteName> = Routes[Name]["answer"];

export interface RequestParts<Name extends RouteName> {
  path?: Routes[Name]["path"];
  query?: QueryOf<Name>;
  body?: BodyOf<Name>;
}

/**
 * Their answers name the operation that `undo` takes, and a repeated request would get another answer. So these are
 * repeated only after 429, when the server has done nothing.
 */
const ONCE: ReadonlySet<RouteName> = new Set<RouteName>([
  "add_memory",
  "update_memory",
  "delete_memory",
  "set_firm",
  "hide_standing",
  "undo",
  "forget",
  "approve",
  "approve_many",
  "reject",
  "reject_many",
  "edit_proposal",
  "run_review",
  "undo_review",
]);
const PREFIX = "/api/v1";
const FIRST_PAUSE = 0.1;

/** Sends requests, repeats those that may be repeated, and keeps to the deadline. */
export class Transport {
  readonly timeout: number;
  readonly #base: string;
  readonly #token: string | undefined;
  readonly #retries: number;
  readonly #fetch: typeof globalThis.fetch;

  constructor(options: ClientOptions) {
    this.#base = (options.url ?? "http://127.0.0.1:7433").replace(/\/+$/, "").replace(/\/api\/v1$/, "") + PREFIX;
    if (!/^https?:\/\/[^/]/.test(this.#base)) {
      throw new TypeError(`${JSON.stringify(options.url)} is not an http:// or https:// address.`);
    }
    if (options.token !== undefined && !/^[\x21-\x7e]+$/.test(options.token)) {
      throw new TypeError("The token is empty, or has spaces or line breaks. Pass what `afterturn token create` prints.");
    }
    this.#token = options.token;
    this.timeout = options.timeout ?? 30;
    this.#retries = options.retries ?? 3;
    this.#fetch = options.fetch ?? ((...given) => globalThis.fetch(...given));
  }

  /** The JSON of the answer. Throws AfterturnError, or the reason of the signal. */
  async request<Name extends RouteName>(
    name: Name,
    parts: RequestParts<Name>,
    call: CallOptions = {},
  ): Promise<AnswerOf<Name>> {
    const limit = new Limit(call.timeout ?? this.timeout, call.signal);
    try {
      const [response, url] = await this.#send(name, parts, limit);
      try {
        return (await response.json()) as AnswerOf<Name>;
      } catch (error) {
        throw limit.errorFor(error, url);
      }
    } finally {
      limit.end();
    }
  }

  /** The lines of an answer that is a stream. Throws if it breaks off, or if nothing comes for `timeout` seconds. */
  async *lines<Name extends RouteName>(
    name: Name,
    parts: RequestParts<Name>,
    call: CallOptions = {},
  ): AsyncGenerator<string, void, undefined> {
    const limit = new Limit(call.timeout ?? this.timeout, call.signal);
    try {
      const [response, url] = await this.#send(name, parts, limit);
      if (response.body === null) return;
      const reader = response.body.getReader();
      const decoder = new TextDecoder();
      let rest = "";
      for (;;) {
        limit.restart();
        let chunk: Awaited<ReturnType<typeof reader.read>>;
        try {
          chunk = await reader.read();
        } catch (error) {
          throw limit.errorFor(error, url);
        }
        // The reader of the lines may take its time.
        limit.pause();
        rest += decoder.decode(chunk.value, { stream: !chunk.done });
        const lines = rest.split(/\r?\n/);
        rest = lines.pop() ?? "";
        yield* lines;
        if (chunk.done) break;
      }
      if (rest !== "") yield rest;
    } finally {
      limit.abort();
    }
  }

  async #send<Name extends RouteName>(
    name: Name,
    parts: RequestParts<Name>,
    limit: Limit,
  ): Promise<[Response, string]> {
    const [method, template] = ROUTES[name];
    const url = this.#base + fillPath(template, parts.path ?? {}) + queryText(parts.query ?? {});
    const headers: Record<string, string> = { accept: "application/json" };
    if (this.#token !== undefined) headers["authorization"] = `Bearer ${this.#token}`;
    const init: RequestInit = { method, headers, redirect: "manual", signal: limit.signal };
    if (parts.body !== undefined && parts.body !== null) {
      headers["content-type"] = "application/json";
      init.body = JSON.stringify(parts.body);
    }
    for (let attempt = 0; ; attempt += 1) {
      const error = await this.#try(url, init, limit);
      if (!(error instanceof AfterturnError)) return [error, url];
      const mayRepeat = ONCE.has(name) ? error.status === 429 : error.isTemporary;
      const pause = error.retryAfter ?? FIRST_PAUSE * 2 ** attempt * (1 + Math.random());
      if (!mayRepeat || attempt >= this.#retries || pause >= limit.left) throw error;
      await limit.sleep(pause, url);
    }
  }

  async #try(url: string, init: RequestInit, limit: Limit): Promise<Response | AfterturnError> {
    try {
      const response = await this.#fetch(url, init);
      return response.ok ? response : await errorOf(response, url);
    } catch (error) {
      const found = limit.errorFor(error, url);
      if (limit.isOver) throw found;
      return found as AfterturnError;
    }
  }
}

/** The deadline of one call, and the caller's signal. */
class Limit {
  readonly #controller = new AbortController();
  readonly #outer: AbortSignal | undefined;
  readonly #seconds: number;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #until = 0;
  #isLate = false;

  constructor(seconds: number, signal: AbortSignal | undefined) {
    this.#seconds = seconds;
    this.#outer = signal;
    signal?.throwIfAborted();
    signal?.addEventListener("abort", this.#stop);
    this.restart();
  }

  readonly #stop = (): void => this.#controller.abort();

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  get isOver(): boolean {
    return this.#controller.signal.aborted;
  }

  get left(): number {
    return (this.#until - Date.now()) / 1000;
  }

  restart(): void {
    clearTimeout(this.#timer);
    this.#until = Date.now() + this.#seconds * 1000;
    // A longer timer would fire at once.
    this.#timer = setTimeout(() => {
      this.#isLate = true;
      this.#stop();
    }, Math.min(this.#seconds * 1000, 2 ** 31 - 1));
  }

  pause(): void {
    clearTimeout(this.#timer);
  }

  /** Gives the answer back, so that its connection can be used again. */
  end(): void {
    clearTimeout(this.#timer);
    this.#outer?.removeEventListener("abort", this.#stop);
  }

  /** Ends the answer too. */
  abort(): void {
    this.end();
    this.#stop();
  }

  async sleep(seconds: number, url: string): Promise<void> {
    await new Promise<void>((resolve) => {
      const done = (): void => {
        clearTimeout(timer);
        this.signal.removeEventListener("abort", done);
        resolve();
      };
      const timer = setTimeout(done, seconds * 1000);
      this.signal.addEventListener("abort", done);
    });
    if (this.isOver) throw this.errorFor(undefined, url);
  }

  /** What to throw for an error of `fetch`: the reason of the caller's signal, or an AfterturnError. */
  errorFor(cause: unknown, url: string): unknown {
    if (this.#outer?.aborted) return this.#outer.reason;
    if (this.#isLate) {
      return new AfterturnError("DeadlineExceeded", `${url} did not answer within ${this.#seconds} seconds.`, { cause });
    }
    if (cause instanceof AfterturnError) return cause;
    const why = causeText(cause);
    return new AfterturnError("ConnectionFailed", `${url} cannot be reached, or broke off: ${why}`, { cause });
  }
}

function causeText(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const deeper = error.cause instanceof Error ? error.cause : error;
  return deeper.message || (deeper as { code?: string }).code || error.message;
}

function fillPath(template: string, names: Record<string, string>): string {
  return template.replace(/\{(\w+)\}/g, (_, key: string) => {
    const name = names[key];
    // URLs cannot have these as a segment: they mean folders there, also if they are encoded.
    if (typeof name !== "string" || ["", ".", ".."].includes(name)) {
      throw new TypeError(`${JSON.stringify(name)} cannot be the name of a ${key} in a URL. Choose another one.`);
    }
    return encodeURIComponent(name);
  });
}

function queryText(query: object): string {
  const found = new URLSearchParams();
  for (const [key, value] of Object.entries(query) as [string, unknown][]) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one === null || one === undefined) continue;
      if (one instanceof Date) found.append(key, one.toISOString());
      else found.append(key, typeof one === "object" ? JSON.stringify(one) : String(one));
    }
  }
  const text = found.toString();
  return text === "" ? "" : `?${text}`;
}
