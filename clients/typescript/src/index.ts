import { Conversation } from "./conversation.js";
import type { AfterturnError } from "./errors.js";
import { streamEvents, type EventOptions, type MemoryEvent } from "./events.js";
import type { ConversationWhere, SpaceSummary, Stats, UsageRow } from "./schema.js";
import { Space } from "./space.js";
import {
  Transport,
  type AnswerOf,
  type CallOptions,
  type ClientOptions,
  type QueryOf,
  type RequestParts,
  type RouteName,
} from "./transport.js";

/** A client of one server, with one token. It keeps nothing open. */
export class Afterturn {
  readonly #transport: Transport;
  readonly #onTurnError: ((error: AfterturnError) => void) | undefined;

  constructor(options: ClientOptions = {}) {
    this.#transport = new Transport(options);
    this.#onTurnError = options.onTurnError;
  }

  /** A conversation by your id. `where` names what it may reach; the token has the defaults. */
  conversation(id: string, where: Omit<ConversationWhere, "id"> = {}): Conversation {
    return new Conversation(this.#transport, this.#onTurnError, id, where);
  }

  /** A space by its name, such as `user:ada`. */
  space(name: string): Space {
    return new Space(this.#transport, name);
  }

  /** The spaces that the token may read, by name. */
  async spaces(call?: CallOptions): Promise<SpaceSummary[]> {
    return (await this.request("list_spaces", {}, call)).spaces;
  }

  /** Model calls and tokens by day, space and purpose. */
  async usage(options: QueryOf<"usage"> = {}, call?: CallOptions): Promise<UsageRow[]> {
    return (await this.request("usage", { query: options }, call)).usage;
  }

  /** What is stored for the tenant, and what waits to be done. For tokens of all spaces. */
  stats(call?: CallOptions): Promise<Stats> {
    return this.request("stats", {}, call);
  }

  /** The events of the token's spaces from now on. It connects again until the loop or `signal` ends it. */
  events(options: EventOptions = {}): AsyncGenerator<MemoryEvent, void, undefined> {
    return streamEvents(this.#transport, options);
  }

  /** Any route that answers JSON, by its operationId in the OpenAPI document. */
  request<Name extends RouteName>(
    name: Name,
    parts: RequestParts<Name> = {},
    call?: CallOptions,
  ): Promise<AnswerOf<Name>> {
    return this.#transport.request(name, parts, call);
  }
}

export { applyInserted, Conversation, Turn, type Message, type Waiting } from "./conversation.js";
export { AfterturnError } from "./errors.js";
export type { EventOptions, MemoryEvent } from "./events.js";
export type * from "./schema.js";
export { Space } from "./space.js";
export type { CallOptions, ClientOptions, QueryOf } from "./transport.js";
