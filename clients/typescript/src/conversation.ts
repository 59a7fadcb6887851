import { AfterturnError } from "./errors.js";
import type {
  BlockAnswer,
  ConversationWhere,
  Inserted,
  Replay,
  ReplayBody,
  StandingBody,
  ToolAdvice,
  Trace,
  TurnBlock,
  TurnInject,
  TurnStart,
  TurnState,
  WhyAnswers,
} from "./schema.js";
import type { CallOptions, RouteName, Transport, AnswerOf, BodyOf, QueryOf } from "./transport.js";

/** One message, in the format of your model provider. */
export type Message = object;

/** How a block is waited for: `within` seconds, and which `phase` of the recall. */
export type Waiting = Omit<TurnBlock, "conversation">;

type TurnRoute = "inject" | "block" | "interject" | "cue" | "before_tool" | "finish" | "abort" | "wait";

/**
 * Applies what `inject` answered to the list that was sent, in place: puts each element at its index, or replaces the
 * one there.
 */
export function applyInserted(messages: Message[], inserted: readonly Inserted[]): void {
  for (const { index, element, replaces } of inserted) {
    if (index > messages.length - (replaces ? 1 : 0)) {
      throw new RangeError(`Index ${index} is not in the list of ${messages.length} messages. Pass the list that was sent.`);
    }
    messages.splice(index, replaces ? 1 : 0, element);
  }
}

/** A conversation and what it may reach. Made by `Afterturn.conversation`; nothing is sent until a verb is called. */
export class Conversation {
  readonly id: string;
  /** What is sent with every verb. */
  readonly where: ConversationWhere;
  readonly #transport: Transport;
  readonly #onTurnError: ((error: AfterturnError) => void) | undefined;

  constructor(
    transport: Transport,
    onTurnError: ((error: AfterturnError) => void) | undefined,
    id: string,
    where: Omit<ConversationWhere, "id">,
  ) {
    this.id = id;
    this.where = { ...where, id };
    this.#transport = transport;
    this.#onTurnError = onTurnError;
  }

  /**
   * Starts a turn with the latest user message of `messages`, and its recall. Give it an id of yours as `turn`, such as
   * that of the message, if your program may start it again.
   */
  async start(
    messages: readonly Message[],
    options: Omit<TurnStart, "conversation" | "messages"> = {},
    call?: CallOptions,
  ): Promise<Turn> {
    const id = options.turn ?? randomId();
    const turn = new Turn(this, this.#ask, id, { ...options, messages: asRecords(messages), turn: id });
    await this.optional(() => turn.begin(call), undefined);
    return turn;
  }

  /** A turn that was started elsewhere, such as in another process. */
  turn(id: string): Turn {
    return new Turn(this, this.#ask, id, null);
  }

  /** The standing block for the system prompt: what lasts. Frozen for the conversation. Empty if there is nothing. */
  async standing(options: Omit<StandingBody, "conversation"> = {}, call?: CallOptions): Promise<string> {
    return this.optional(async () => (await this.#post("standing", options, call)).text, "");
  }

  /** How the last other conversation in the same project ended. Empty if there is nothing. */
  async briefing(call?: CallOptions): Promise<string> {
    return this.optional(async () => (await this.#post("briefing", {}, call)).text, "");
  }

  /** Starts a recall for what the user is typing. */
  async expect(text: string, call?: CallOptions): Promise<void> {
    await this.optional(() => this.#post("expect", { text }, call), undefined);
  }

  /** The context was compacted to these messages: what was removed may be recalled again. */
  async compacted(messages: readonly Message[] | null, call?: CallOptions): Promise<void> {
    const left = messages === null ? null : asRecords(messages);
    await this.optional(() => this.#post("compacted", { messages: left }, call), undefined);
  }

  /** These messages are about to be compacted. */
  async compacting(messages: readonly Message[], call?: CallOptions): Promise<void> {
    await this.optional(() => this.#post("compacting", { messages: asRecords(messages) }, call), undefined);
  }

  /** The conversation starts again: nothing counts as shown any more. Memories are kept. */
  async reset(call?: CallOptions): Promise<void> {
    await this.optional(() => this.#post("reset", {}, call), undefined);
  }

  /** The rules that concern a tool call outside of any turn. */
  async beforeTool(name: string, args: unknown = null, call?: CallOptions): Promise<ToolAdvice> {
    return this.optional(() => this.#post("before_tool_outside", { name, arguments: args }, call), NO_ADVICE);
  }

  /** Keeps that the turns of this conversation are incognito from now on. Always throws if that fails. */
  async setIncognito(on: boolean, call?: CallOptions): Promise<void> {
    await this.#post("set_incognito", { on }, call);
  }

  async isIncognito(call?: CallOptions): Promise<boolean> {
    const parts = { path: { conversation: this.id }, query: { owner: this.where.owner } };
    return (await this.#transport.request("is_incognito", parts, call)).on;
  }

  /** What the newest turns recalled, what was delivered, what was left out and why. */
  async trace(options: Omit<QueryOf<"trace">, "owner"> = {}, call?: CallOptions): Promise<Trace> {
    const parts = { path: { conversation: this.id }, query: { ...options, owner: this.where.owner } };
    return this.#transport.request("trace", parts, call);
  }

  /** Why a memory was, or was not, in the recalls of a turn. */
  async why(memory: string, options: Omit<QueryOf<"why">, "owner" | "memory"> = {}, call?: CallOptions): Promise<WhyAnswers> {
    const parts = { path: { conversation: this.id }, query: { ...options, memory, owner: this.where.owner } };
    return this.#transport.request("why", parts, call);
  }

  /** Renders the blocks of a turn again and compares them, with `changes` also under other settings. */
  async replay(options: Omit<ReplayBody, "owner"> = {}, call?: CallOptions): Promise<Replay> {
    const body = { ...options, owner: this.where.owner ?? null };
    return this.#transport.request("replay", { path: { conversation: this.id }, body }, call);
  }

  /** Runs a verb. With `onTurnError`, an error of memory is reported there, and `otherwise` returned. */
  async optional<Value>(verb: () => Promise<Value>, otherwise: Value | ((error: AfterturnError) => Value)): Promise<Value> {
    try {
      return await verb();
    } catch (error) {
      if (this.#onTurnError === undefined || !(error instanceof AfterturnError)) throw error;
      this.#onTurnError(error);
      return typeof otherwise === "function" ? (otherwise as (error: AfterturnError) => Value)(error) : otherwise;
    }
  }

  readonly #ask: Ask = (route, path, body, call) =>
    this.#transport.request(route, { path, body: { ...body, conversation: this.where } as never }, call);

  #post<Name extends "standing" | "briefing" | "expect" | "compacted" | "compacting" | "reset" | "before_tool_outside" | "set_incognito">(
    route: Name,
    body: Omit<BodyOf<Name>, "conversation">,
    call: CallOptions | undefined,
  ): Promise<AnswerOf<Name>> {
    return this.#ask(route, { conversation: this.id }, body, call);
  }
}

type Ask = <Name extends RouteName>(
  route: Name,
  path: Record<string, string>,
  body: object,
  call: CallOptions | undefined,
) => Promise<AnswerOf<Name>>;

const NO_ADVICE: ToolAdvice = { rules: [], text: "", refusal: null };

/** One message of the user and the agent's answer to it. Every verb may be repeated. */
export class Turn {
  readonly id: string;
  readonly conversation: Conversation;
  readonly #ask: Ask;
  #unstarted: Omit<TurnStart, "conversation"> | null;

  constructor(conversation: Conversation, ask: Ask, id: string, unstarted: Omit<TurnStart, "conversation"> | null) {
    this.id = id;
    this.conversation = conversation;
    this.#ask = ask;
    this.#unstarted = unstarted;
  }

  /** Starts the turn, unless that was done. The other verbs call it, so a turn whose start failed starts with them. */
  async begin(call?: CallOptions): Promise<void> {
    if (this.#unstarted === null) return;
    await this.#ask("start_turn", {}, this.#unstarted, call);
    this.#unstarted = null;
  }

  /**
   * Call it before each call of the model. Adds blocks to `messages`, in place, and returns what it has changed. Keep
   * them in your list. The server waits up to 0.2 seconds for its recall; `within` names another time.
   */
  async inject(messages: Message[], options: Waiting = {}, call?: CallOptions): Promise<Inserted[]> {
    const body: Omit<TurnInject, "conversation"> = { ...options, messages: asRecords(messages) };
    const found = await this.conversation.optional(async () => (await this.#post("inject", body, call)).inserted, []);
    applyInserted(messages, found);
    return found;
  }

  /** The blocks of this turn as text, for programs that write their prompt again at every step. */
  async block(options: Waiting = {}, call?: CallOptions): Promise<string> {
    const ask = async (): Promise<BlockAnswer> => this.#post("block", options, call);
    return this.conversation.optional(async () => (await ask()).text, "");
  }

  /** The user said more during the turn, and you have appended it to the messages: starts a new recall. */
  async interject(text: string, call?: CallOptions): Promise<TurnState> {
    return this.#state("interject", { text }, call);
  }

  /** The turn has a new focus, in your words: starts a new recall. At most four times in a turn. */
  async cue(text: string, call?: CallOptions): Promise<TurnState> {
    return this.#state("cue", { text }, call);
  }

  /**
   * Call it before a tool runs: the user's rules that concern this call. With a `refusal`, do not run the tool. If
   * memory fails and `onTurnError` is given, there are no rules: the call was not checked.
   */
  async beforeTool(name: string, args: unknown = null, call?: CallOptions): Promise<ToolAdvice> {
    return this.conversation.optional(() => this.#post("before_tool", { name, arguments: args }, call), NO_ADVICE);
  }

  /** The agent has answered: ends the turn, and waits until its messages are durably stored (`recorded`). */
  async finish(messages: readonly Message[], options: { within?: number } = {}, call?: CallOptions): Promise<TurnState> {
    return this.#state("finish", { ...options, messages: asRecords(messages) }, call);
  }

  /** Gives the turn up: nothing is recorded. */
  async abort(reason = "aborted", call?: CallOptions): Promise<TurnState> {
    return this.#state("abort", { reason }, call);
  }

  /** Waits until the turn is durably stored, at most `within` seconds (default: 5). */
  async wait(options: { within?: number } = {}, call?: CallOptions): Promise<TurnState> {
    return this.#state("wait", options, call);
  }

  /** Without memory the turn is not recorded, and `reason` says why. */
  #state(route: "interject" | "cue" | "finish" | "abort" | "wait", body: object, call?: CallOptions): Promise<TurnState> {
    return this.conversation.optional<TurnState>(
      () => this.#post(route, body, call),
      (error) => ({ turn: this.id, status: "open", recorded: false, reason: error.message }),
    );
  }

  async #post<Name extends TurnRoute>(route: Name, body: object, call?: CallOptions): Promise<AnswerOf<Name>> {
    await this.begin(call);
    return this.#ask(route, { turn: this.id }, body, call);
  }
}

/** A copy, so that a request sends the list as it was when the verb was called. */
function asRecords(messages: readonly Message[]): Record<string, unknown>[] {
  return [...messages] as Record<string, unknown>[];
}

/** `crypto.randomUUID` is missing in Node 18 and on pages without TLS. An id must be unique, not secret. */
function randomId(): string {
  const part = (): string => Math.random().toString(36).slice(2, 12);
  return `${Date.now().toString(36)}-${part()}${part()}`;
}
