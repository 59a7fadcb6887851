import { AfterturnError } from "./errors.js";
import type {
  Added,
  Changed,
  Decided,
  Entry,
  ForgetBody,
  ForgetPreview,
  Forgotten,
  History,
  LoggedOperation,
  Memories,
  MemoryChange,
  NewMemory,
  Origin,
  Profile,
  Proposal,
  Proposals,
  Review,
  ReviewRun,
  Reviews,
  SearchAnswer,
  SpaceStats,
  StandingLine,
  Undone,
  UsageRow,
} from "./schema.js";
import type { AnswerOf, BodyOf, CallOptions, QueryOf, RouteName, Transport } from "./transport.js";

/** The memories of one user, team or project, its inbox and its reviews. Made by `Afterturn.space`. */
export class Space {
  readonly name: string;
  readonly #transport: Transport;

  constructor(transport: Transport, name: string) {
    this.name = name;
    this.#transport = transport;
  }

  /** Searches by words and by meaning, best hits first. */
  search(query: string, options: Omit<QueryOf<"search">, "query"> = {}, call?: CallOptions): Promise<SearchAnswer> {
    return this.#get("search", { ...options, query }, call);
  }

  /** One page of the active memories, newest first. Pass its `before` for the next one. */
  list(options: QueryOf<"list_memories"> = {}, call?: CallOptions): Promise<Memories> {
    return this.#get("list_memories", options, call);
  }

  /** All active memories, newest first, page by page. */
  async *listAll(options: Omit<QueryOf<"list_memories">, "before"> = {}, call?: CallOptions): AsyncGenerator<Entry, void, undefined> {
    let before: string | null = null;
    do {
      const page: Memories = await this.list({ limit: 500, ...options, before }, call);
      yield* page.memories;
      before = page.before;
    } while (before !== null);
  }

  /** Adds one statement. If the space already says so, returns that memory with `created: false`. */
  add(text: string, fields: Omit<NewMemory, "text"> = {}, call?: CallOptions): Promise<Added> {
    return this.#send("add_memory", {}, { ...fields, text }, call);
  }

  /** A memory: the active version, or the given one. */
  get(memory: string, options: QueryOf<"get_memory"> = {}, call?: CallOptions): Promise<Entry> {
    return this.#transport.request("get_memory", { path: { space: this.name, memory }, query: options }, call);
  }

  /** Writes a new version. With `expected_version`, throws a `Conflict` if the memory has changed since. */
  update(memory: string, text: string, fields: Omit<MemoryChange, "text"> = {}, call?: CallOptions): Promise<Changed> {
    return this.#send("update_memory", { memory }, { ...fields, text }, call);
  }

  /** Hides a memory. `undo` brings it back; `forget` erases. */
  delete(memory: string, options: { origin?: Origin } = {}, call?: CallOptions): Promise<Changed> {
    return this.#transport.request("delete_memory", { path: { space: this.name, memory }, query: options }, call);
  }

  /** All versions of a memory and what changed it, oldest first. */
  history(memory: string, call?: CallOptions): Promise<History> {
    return this.#transport.request("memory_history", { path: { space: this.name, memory } }, call);
  }

  /** Makes a memory a rule that refuses the tool calls that it concerns, or no longer. */
  setFirm(memory: string, firm: boolean, call?: CallOptions): Promise<Changed> {
    return this.#send("set_firm", { memory }, { firm }, call);
  }

  /** Takes a memory out of the standing context, or puts it back. */
  hideStanding(memory: string, hidden: boolean, call?: CallOptions): Promise<Changed> {
    return this.#send("hide_standing", { memory }, { hidden }, call);
  }

  /** The operations on this space, newest first. */
  async operations(options: QueryOf<"list_operations"> = {}, call?: CallOptions): Promise<LoggedOperation[]> {
    return (await this.#get("list_operations", options, call)).operations;
  }

  /** Takes back one operation, or all of a group such as an import or a review. */
  undo(target: string, call?: CallOptions): Promise<Undone> {
    return this.#send("undo", {}, { target }, call);
  }

  /** What `forget` would erase. */
  forgetPreview(selector: ForgetBody, call?: CallOptions): Promise<ForgetPreview> {
    return this.#send("preview", {}, selector, call);
  }

  /** Erases for good what one of `memory`, `conversation`, `source`, `speaker` or `everything` names. */
  forget(selector: ForgetBody, call?: CallOptions): Promise<Forgotten> {
    return this.#send("forget", {}, selector, call);
  }

  /** Everything that is stored about this space: a header, then objects with one key, the kind of the row. */
  async *export(call?: CallOptions): AsyncGenerator<Record<string, unknown>, void, undefined> {
    for await (const line of this.#transport.lines("export", { path: { space: this.name } }, call)) {
      try {
        yield JSON.parse(line) as Record<string, unknown>;
      } catch (cause) {
        throw new AfterturnError("HttpError", "The export has a line that is not JSON.", { status: 200, cause });
      }
    }
  }

  /** What this space knows now, by subject, newest first. */
  profile(options: QueryOf<"profile"> = {}, call?: CallOptions): Promise<Profile> {
    return this.#get("profile", options, call);
  }

  /** Every line that this space gives to a standing block now: who wrote it, when, and how it came in. */
  async standing(options: QueryOf<"standing_audit"> = {}, call?: CallOptions): Promise<StandingLine[]> {
    return (await this.#get("standing_audit", options, call)).lines;
  }

  /** Ids of conversations, newest activity first. */
  async conversations(options: QueryOf<"list_conversations"> = {}, call?: CallOptions): Promise<string[]> {
    return (await this.#get("list_conversations", options, call)).conversations;
  }

  /** Model calls and tokens by day and purpose, newest day first. */
  async usage(options: QueryOf<"space_usage"> = {}, call?: CallOptions): Promise<UsageRow[]> {
    return (await this.#get("space_usage", options, call)).usage;
  }

  /** Entries by kind and status. */
  stats(call?: CallOptions): Promise<SpaceStats> {
    return this.#get("space_stats", {}, call);
  }

  // The inbox.

  /** One page of what waits for approval, newest first. Pass its `before` for the next one. */
  proposals(options: QueryOf<"list_proposals"> = {}, call?: CallOptions): Promise<Proposals> {
    return this.#get("list_proposals", options, call);
  }

  /** One proposal with what it would change. */
  proposal(memory: string, call?: CallOptions): Promise<Proposal> {
    return this.#transport.request("get_proposal", { path: { space: this.name, memory } }, call);
  }

  /** Applies a proposal; `undo` makes it wait again. */
  approve(memory: string, call?: CallOptions): Promise<Changed> {
    return this.#send("approve", { memory }, null, call);
  }

  /** Removes a proposal from the inbox; `undo` brings it back. */
  reject(memory: string, call?: CallOptions): Promise<Changed> {
    return this.#send("reject", { memory }, null, call);
  }

  /** Applies several proposals in one transaction, as one group for `undo`. */
  approveAll(ids: string[], call?: CallOptions): Promise<Decided> {
    return this.#send("approve_many", {}, { ids }, call);
  }

  /** Removes several proposals from the inbox in one transaction, as one group for `undo`. */
  rejectAll(ids: string[], call?: CallOptions): Promise<Decided> {
    return this.#send("reject_many", {}, { ids }, call);
  }

  /** Approves a proposal with another text, as the user's. */
  editProposal(memory: string, text: string, call?: CallOptions): Promise<Decided> {
    return this.#send("edit_proposal", { memory }, { text }, call);
  }

  // Reviews.

  /** One page of the reviews of this space's conversations, newest first. Pass its `before` for the next one. */
  reviews(options: QueryOf<"list_reviews"> = {}, call?: CallOptions): Promise<Reviews> {
    return this.#get("list_reviews", options, call);
  }

  /** A review with its changes. */
  review(review: string, call?: CallOptions): Promise<Review> {
    return this.#transport.request("get_review", { path: { space: this.name, review } }, call);
  }

  /** Reviews a conversation now and waits for the result. `null` if there is nothing new. */
  async runReview(conversation: string, options: Omit<ReviewRun, "conversation"> = {}, call?: CallOptions): Promise<Review | null> {
    return (await this.#send("run_review", {}, { ...options, conversation }, call)).review;
  }

  /** Takes back all changes of a review and the decisions on its proposals. */
  async undoReview(review: string, call?: CallOptions): Promise<Undone[]> {
    return (await this.#send("undo_review", { review }, null, call)).undone;
  }

  #get<Name extends RouteName>(name: Name, query: QueryOf<Name>, call?: CallOptions): Promise<AnswerOf<Name>> {
    return this.#transport.request(name, { path: { space: this.name }, query } as never, call);
  }

  #send<Name extends RouteName>(name: Name, path: object, body: BodyOf<Name>, call?: CallOptions): Promise<AnswerOf<Name>> {
    return this.#transport.request(name, { path: { ...path, space: this.name }, body } as never, call);
  }
}
