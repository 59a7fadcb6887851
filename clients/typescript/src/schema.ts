// Generated from the OpenAPI document by `make client-types`. Do not edit it.

/** `created` is false if the space already held the statement. `undo` takes `operation`. */
export interface Added {
  entry: Entry;
  created: boolean;
  operation: string | null;
}

/** The blocks of this turn as text; empty if there is none. Later answers begin with the same bytes. */
export interface BlockAnswer {
  turn: string;
  text: string;
}

/** The entry as it is now. `undo` takes `operation`, which is empty if nothing changed. */
export interface Changed {
  entry: Entry;
  operation: string;
}

export interface CompactedBody {
  conversation?: ConversationWhere;
  /** Those that are left, unless the history is hidden. */
  messages?: Record<string, unknown>[] | null;
}

export interface ConversationToolCall {
  conversation?: ConversationWhere;
  name: string;
  arguments?: unknown;
}

/** A conversation, and what it may reach. Send the same with every verb of one turn. The defaults come from the token: its first space owns the conversation, reads and writes it. */
export interface ConversationWhere {
  /** Needed, unless the token is for one conversation. */
  id?: string | null;
  /** The space that owns it. */
  owner?: string | null;
  /** Further spaces that it reads. */
  reads?: string[];
  /** The space that is written, by default the owner. */
  writes?: string | null;
  /** A space for what is learned about the environment. */
  environment?: string | null;
  /** Labels what is recorded. */
  agent?: string | null;
  /** Labels what is recorded, and narrows what is recalled. */
  project?: string | null;
  /** Whether `messages` is all that the model sees. */
  history?: "shown" | "hidden" | "reported";
  /** How a block is added. */
  placement?: "append" | "merge";
  /** The message format, which is detected otherwise. */
  dialect?: "openai_chat" | "openai_responses" | "anthropic" | "gemini" | "bedrock" | "langchain" | null;
  /** Two agents talk: nothing is learned from it automatically. */
  subagent?: boolean;
  /** Blocks have no line with words of others. */
  trusted_only?: boolean;
  /** Nothing of its turns is recorded or learned. */
  incognito?: boolean;
  /** How the model gets the standing block. */
  standing?: "inject" | "system" | "off" | null;
}

export interface Conversations {
  conversations: string[];
}

/** `undo` takes `group`. `skipped` says, by id, why a proposal could not be decided. */
export interface Decided {
  group: string | null;
  changed: Changed[];
  skipped: Record<string, string>;
}

/** The outcome of a memory in a recall. `shown`: it is in the block. `floor`: its score is too low. `budget`: the block was full. `restated`: another hit says the same. `visible`: the model sees it already. `stale`: it changed meanwhile. `not_handed_over`: the block was not delivered. `not_selected`: the model that selects chose others. `rank`: too many others matched better. `later`: it was stored afterwards. `scope`: it is in a space that the conversation may not read. `unrelated`: it does not match. `unfound`: it matches now, and the reason is not known. */
export type Decision = "shown" | "floor" | "budget" | "restated" | "visible" | "stale" | "not_handed_over" | "not_selected" | "excluded" | "superseded" | "deleted" | "expired" | "proposed" | "quarantined" | "undone" | "scope" | "rank" | "later" | "missing" | "unrelated" | "unfound";

export interface DecisionBody {
  ids: string[];
}

export interface Done {
  done: true;
}

/** One version of a statement or of a recorded message. */
export interface Entry {
  id: string;
  version: number;
  space: string;
  text: string;
  kind: Kind;
  status: Status;
  origin: Origin;
  target: Target;
  trust: number;
  agent: string | null;
  project: string | null;
  conversation: string | null;
  owner: string | null;
  turn: string | null;
  position: number | null;
  speaker: string | null;
  valid_from: number | null;
  valid_to: number | null;
  expires_at: number | null;
  pinned: boolean;
  firm: boolean;
  metadata: Record<string, unknown>;
  sources: string[];
  recorded_at: number;
  occurred_at: number;
  reason: string;
}

/** Every error has this form. */
export interface ErrorAnswer {
  error: ErrorDetail;
}

/** `type` is for programs, `message` says what happened and what to do. */
export interface ErrorDetail {
  type: string;
  message: string;
}

/** One memory and what happened to it in one recall. */
export interface Explained {
  ref: string;
  space: string;
  lane: Lane;
  why: Decision;
  reason: string;
  score: number | null;
  lexical: number | null;
  similarity: number | null;
  score_kind: string | null;
  terms: string[];
  by: string;
  text: string;
}

export interface FirmBody {
  /** Whether it refuses the tool calls that it concerns. */
  firm: boolean;
}

/** Exactly one of the first five. `sources`: with `memory`, also the messages that it was learned from. */
export interface ForgetBody {
  memory?: string | null;
  conversation?: string | null;
  source?: string | null;
  speaker?: string | null;
  everything?: boolean;
  sources?: boolean;
}

/** What `forget` would erase: `matching` entries of any status, by kind and status, and the first of them. Statements that were learned only from them go too and are not counted. `sources` still say it, unless they are erased too. */
export interface ForgetPreview {
  matching: number;
  kinds: Record<string, number>;
  entries: Entry[];
  sources: Entry[];
}

/** `state` is erased, or pending while another process still reads the bytes. `out_of_reach` names what may still hold the text. */
export interface Forgotten {
  state: string;
  erased: number;
  out_of_reach: string[];
  remaining: RemainingBytes[];
  key_destroyed: boolean;
  sources: string[];
}

export interface HideBody {
  /** Whether the memory is left out of the standing context. */
  hidden: boolean;
}

export interface History {
  versions: Entry[];
  steps: Step[];
}

export interface IncognitoAnswer {
  on: boolean;
}

export interface IncognitoBody {
  conversation?: ConversationWhere;
  on: boolean;
}

/** What to change in the list that was sent: new blocks, blocks that were put back, and the standing block. */
export interface Injected {
  turn: string;
  inserted: Inserted[];
}

/** One change of the message list. Apply them in order: put `element` at `index`, or with `replaces` replace the element there. */
export interface Inserted {
  index: number;
  element: Record<string, unknown>;
  replaces: boolean;
}

/** The kind of an entry: a statement is one fact, a record is one message of a recorded turn. */
export type Kind = "statement" | "record";

/** A part of memory that is searched separately. It is computed for each query and never stored. The order is the order in a block. */
export type Lane = "short_term" | "long_term" | "episodic";

/** `text` is that of the last entry that it changed, `entries` is how many it changed. */
export interface LoggedOperation {
  id: string;
  space: string;
  verb: Verb;
  actor: Origin;
  at: number;
  group: string | null;
  entry_id: string | null;
  text: string;
  entries: number;
}

/** `before` is what to pass for the next page; null after the last one. */
export interface Memories {
  memories: Entry[];
  before: string | null;
}

export interface MemoryChange {
  text: string;
  /** 409 if it is another one by now. */
  expected_version?: number | null;
  origin?: Origin;
  clean?: boolean;
}

export interface MessagesBody {
  conversation?: ConversationWhere;
  /** The messages as they are sent to the model, in any format of docs/dialects.md, the whole list. */
  messages: Record<string, unknown>[];
}

/** One statement. Only `text` is needed. */
export interface NewMemory {
  text: string;
  target?: Target | null;
  /** Who states it, by default the user. It decides the trust. */
  origin?: Origin | null;
  /** For an agent's statement: no text of others had entered its turn. */
  clean?: boolean;
  agent?: string | null;
  project?: string | null;
  speaker?: string | null;
  conversation?: string | null;
  /** The space that owns the conversation, if it is another one. */
  owner?: string | null;
  metadata?: Record<string, string | number | boolean | null> | null;
  pinned?: boolean;
  /** A rule that refuses the tool calls that it concerns. */
  firm?: boolean;
  occurred_at?: number | string | null;
  valid_from?: number | string | null;
  valid_to?: number | string | null;
  expires_at?: number | string | null;
  sources?: string[];
}

export interface Operation {
  id: string;
  space: string;
  verb: Verb;
  actor: Origin;
  at: number;
  group: string | null;
}

export interface Operations {
  operations: LoggedOperation[];
}

/** Who wrote an entry. The caller sets it; it is never read from text. `trust`: how far it is trusted. */
export type Origin = "user" | "agent" | "background_review" | "subagent" | "tool" | "web" | "import";

/** How a phase of a recall ended. Each phase ends in exactly one outcome, with a reason. */
export type Outcome = "delivered" | "empty" | "degraded" | "superseded" | "cancelled" | "undelivered";

/** The two results of a recall: the fast one, and the one that a model refined. */
export type Phase = "fast" | "refined";

export interface PlainBody {
  conversation?: ConversationWhere;
}

export interface Profile {
  space: string;
  subjects: ProfileSubject[];
}

export interface ProfileSubject {
  name: string;
  entries: Entry[];
}

/** `base` is the version that the proposal was made for, `current` the active one. `obstacle` says why it cannot be approved now. */
export interface Proposal {
  entry: Entry;
  base: Entry | null;
  current: Entry | null;
  obstacle: string;
}

export interface ProposalEdit {
  /** Approve the proposal with this text. */
  text: string;
}

export interface Proposals {
  proposals: Entry[];
  before: string | null;
}

/** The purpose of a call of a model. */
export type Purpose = "recall" | "review" | "extraction" | "compaction";

/** Why a recall was started. */
export type RecallCause = "message" | "interjection" | "cue" | "compaction";

export interface RemainingBytes {
  where: string;
  until: string;
  retry: boolean;
}

export interface Replay {
  space: string;
  conversation: string;
  number: number;
  turn: string;
  identical: boolean;
  settings: Record<string, unknown>;
  changes: Record<string, unknown>;
  blocks: Replayed[];
}

export interface ReplayBody {
  owner?: string | null;
  /** An id, a number from 1 on, or last. */
  turn?: number | string;
  /** Settings to try instead. */
  changes?: Record<string, string | number | boolean | null>;
}

/** One block, rendered again. `changed` is the block under the settings of `changes`. */
export interface Replayed {
  hash: string;
  point: string;
  questions: string[];
  stored: string;
  rendered: string;
  identical: boolean;
  reason: string;
  changed: string | null;
}

export interface Review {
  row: ReviewRow;
  changes: ReviewedChange[];
}

/** Why a review was started. `interval`, `compaction` and `asked` ask a model, and run one after another within a conversation. */
export type ReviewKind = "interval" | "compaction" | "asked" | "rules" | "extraction" | "consolidation";

/** `review` is null if there was nothing new to review. */
export interface ReviewRan {
  review: Review | null;
}

export interface ReviewRow {
  id: string;
  kind: ReviewKind;
  space: string;
  writes: string;
  conversation: string;
  turn: string;
  state: ReviewState;
  created_at: number;
  ended_at: number | null;
  written: number;
  proposed: number;
  refusals: string[];
  notes: string[];
  calls: number;
  tokens: number;
  reason: string;
}

export interface ReviewRun {
  conversation: string;
  /** The space that it is recorded in, if it is another one. */
  writes?: string | null;
  /** By rules instead of a model. */
  rules?: boolean;
  /** Also messages that were reviewed before. */
  everything?: boolean;
}

/** How a review ended. Only `saved` has written something. A review that timed out is not tried again. */
export type ReviewState = "waiting" | "saved" | "nothing" | "refused" | "timed_out" | "failed" | "forgotten";

export interface ReviewedChange {
  verb: Verb;
  space: string;
  operation: string;
  before: Entry | null;
  after: Entry | null;
  state: string;
}

export interface Reviews {
  reviews: ReviewRow[];
  before: string | null;
}

/** Best hits first. `missing` names what was not available: a lane, vectors or the store. */
export interface SearchAnswer {
  query: string;
  hits: SearchHit[];
  missing: string[];
}

/** `lexical` and `similarity` are between 0 and 1. `answer` is the other message of a record's exchange. */
export interface SearchHit {
  entry: Entry;
  lane: Lane;
  score: number;
  lexical: number;
  similarity: number | null;
  is_earlier: boolean;
  partner: Entry | null;
}

export interface SpaceStats {
  space: string;
  entries: Record<string, number>;
  searchable: number;
  changes: number;
}

export interface SpaceSummary {
  name: string;
  statements: number;
  records: number;
  newest_at: number | null;
}

export interface Spaces {
  spaces: SpaceSummary[];
}

export interface StandingAudit {
  lines: StandingLine[];
}

export interface StandingBody {
  conversation?: ConversationWhere;
  /** Further texts for the block, such as from MCP. */
  instructions?: string[];
  /** Make it again, though it is frozen for the conversation. */
  refresh?: boolean;
}

export interface StandingLine {
  part: string;
  text: string;
  author: string;
  at: number | null;
  through: string[];
  entry: Entry | null;
  kind: string;
  chance: number | null;
  left_out: string;
}

/** What is stored for the tenant, and what waits to be done. */
export interface Stats {
  tenant: string;
  spaces: number;
  entries: Record<string, number>;
  jobs: Record<string, number>;
  recordings_waiting: number;
  vectors: boolean;
  vectors_waiting: number | null;
  embedder: string;
}

/** The state of one version of an entry. Only `active` versions are recalled. `proposed` waits for approval; next to an active version with the same id it is a proposed change. `withdrawal` is a proposal to delete. `quarantined` is an untrusted text that contained a secret; models never see it. */
export type Status = "active" | "superseded" | "deleted" | "proposed" | "withdrawal" | "expired" | "undone" | "quarantined";

export interface Step {
  operation: Operation;
  entry_id: string;
  version: number;
  before: Status | null;
  after: Status;
}

/** The subject of a statement: the user, or the environment, that is projects, tools and systems. */
export type Target = "user" | "environment";

export interface TextAnswer {
  text: string;
}

export interface TextBody {
  conversation?: ConversationWhere;
  text: string;
}

/** The rules of the user that concern the call. With a `refusal`, do not run the tool: give the model that text. */
export interface ToolAdvice {
  rules: ToolRule[];
  text: string;
  refusal: string | null;
}

export interface ToolCall {
  conversation: ConversationWhere;
  name: string;
  /** Those of the call. */
  arguments?: unknown;
}

export interface ToolRule {
  ref: string;
  space: string;
  text: string;
  why: string;
  firm: boolean;
}

/** The newest turns of a conversation, oldest first, out of `turns_total`. */
export interface Trace {
  space: string;
  conversation: string;
  turns_total: number;
  turns: TracedTurn[];
}

/** `text` is empty if something in it was forgotten, or if the token may not read all of its spaces. */
export interface TracedBlock {
  hash: string;
  point: string;
  injected_at: number;
  size_bytes: number;
  tokens: number | null;
  memories: number;
  refs: string[];
  text: string;
  in_sight: boolean;
}

export interface TracedRecall {
  correlation: string;
  cause: RecallCause;
  phase: Phase;
  epoch: number;
  question: string;
  asked_at: number;
  milliseconds: number | null;
  outcome: Outcome;
  reason: string;
  fate: string;
  reads: string[];
  missing: string[];
  block: string;
  shown: Explained[];
  left_out: Explained[];
}

export interface TracedRule {
  tool: string;
  ref: string;
  rule: string;
  why: string;
  refused: boolean;
}

export interface TracedTurn {
  number: number;
  id: string;
  status: TurnStatus;
  started_at: number;
  ended_at: number | null;
  recorded_at: number | null;
  incognito: boolean;
  no_recall: string | null;
  not_recorded: string;
  blocks: TracedBlock[];
  recalls: TracedRecall[];
  rules: TracedRule[];
}

export interface TurnAbort {
  conversation: ConversationWhere;
  reason?: string;
}

export interface TurnBlock {
  conversation: ConversationWhere;
  /** Wait for at most this many seconds instead of the default. */
  within?: number | null;
  phase?: "fast" | "refined";
}

export interface TurnFinish {
  conversation: ConversationWhere;
  /** The messages as they are sent to the model, in any format of docs/dialects.md, the whole list. */
  messages: Record<string, unknown>[];
  /** Wait for at most this many seconds instead of the default. */
  within?: number | null;
}

export interface TurnInject {
  conversation: ConversationWhere;
  /** The messages as they are sent to the model, in any format of docs/dialects.md, the whole list. */
  messages: Record<string, unknown>[];
  /** Wait for at most this many seconds instead of the default. */
  within?: number | null;
  phase?: "fast" | "refined";
}

/** Begins a turn with the latest user message of `messages`. */
export interface TurnStart {
  conversation: ConversationWhere;
  /** The messages as they are sent to the model, in any format of docs/dialects.md, the whole list. */
  messages: Record<string, unknown>[];
  /** Your id of the turn. With it, the request may be repeated safely. */
  turn?: string | null;
  /** Who wrote the message. */
  speaker?: string | null;
  /** Nothing of this turn is recorded or learned. */
  incognito?: boolean;
}

/** A turn. `recorded`: its messages are durably stored. `reason` says why an ended turn was not recorded, if that is known yet. */
export interface TurnState {
  turn: string;
  status: TurnStatus;
  recorded: boolean;
  reason: string;
}

/** The state of a turn. `abandoned`: it was left open and not continued for a day. */
export type TurnStatus = "open" | "completed" | "aborted" | "abandoned";

export interface TurnText {
  conversation: ConversationWhere;
  text: string;
}

export interface TurnWait {
  conversation: ConversationWhere;
  /** Wait for at most this many seconds instead of the default. */
  within?: number | null;
}

export interface UndoBody {
  /** The id of an operation, or of a group such as an import or a review. */
  target: string;
}

export interface Undone {
  operation: string;
  steps: Step[];
}

export interface UndoneAll {
  undone: Undone[];
}

export interface Usage {
  usage: UsageRow[];
}

export interface UsageRow {
  space: string;
  day: string;
  purpose: Purpose;
  calls: number;
  tokens_in: number;
  tokens_out: number;
  estimated: number;
}

/** The verb of an operation. `undo` is an operation too, so it can be undone. */
export type Verb = "add" | "update" | "promote" | "approve" | "delete" | "hide" | "record" | "import" | "undo";

export interface WhyAnswer {
  turn: number;
  question: string;
  asked_at: number;
  phase: string;
  explained: Explained;
}

export interface WhyAnswers {
  answers: WhyAnswer[];
}

/** What each route takes and answers, by the operationId of the OpenAPI document. */
export interface Routes {
  abort: { path: { turn: string }; query: {}; body: TurnAbort; answer: TurnState };
  add_memory: { path: { space: string }; query: {}; body: NewMemory; answer: Added };
  approve: { path: { space: string; memory: string }; query: {}; body: null; answer: Changed };
  approve_many: { path: { space: string }; query: {}; body: DecisionBody; answer: Decided };
  before_tool: { path: { turn: string }; query: {}; body: ToolCall; answer: ToolAdvice };
  before_tool_outside: { path: { conversation: string }; query: {}; body: ConversationToolCall; answer: ToolAdvice };
  block: { path: { turn: string }; query: {}; body: TurnBlock; answer: BlockAnswer };
  briefing: { path: { conversation: string }; query: {}; body: PlainBody; answer: TextAnswer };
  compacted: { path: { conversation: string }; query: {}; body: CompactedBody; answer: Done };
  compacting: { path: { conversation: string }; query: {}; body: MessagesBody; answer: Done };
  cue: { path: { turn: string }; query: {}; body: TurnText; answer: TurnState };
  delete_memory: { path: { space: string; memory: string }; query: { origin?: Origin }; body: null; answer: Changed };
  edit_proposal: { path: { space: string; memory: string }; query: {}; body: ProposalEdit; answer: Decided };
  events: { path: {}; query: { space?: string[] | null }; body: null; answer: string };
  expect: { path: { conversation: string }; query: {}; body: TextBody; answer: Done };
  export: { path: { space: string }; query: {}; body: null; answer: string };
  finish: { path: { turn: string }; query: {}; body: TurnFinish; answer: TurnState };
  forget: { path: { space: string }; query: {}; body: ForgetBody; answer: Forgotten };
  get_memory: { path: { space: string; memory: string }; query: { version?: number | null }; body: null; answer: Entry };
  get_proposal: { path: { space: string; memory: string }; query: {}; body: null; answer: Proposal };
  get_review: { path: { space: string; review: string }; query: {}; body: null; answer: Review };
  hide_standing: { path: { space: string; memory: string }; query: {}; body: HideBody; answer: Changed };
  inject: { path: { turn: string }; query: {}; body: TurnInject; answer: Injected };
  interject: { path: { turn: string }; query: {}; body: TurnText; answer: TurnState };
  is_incognito: { path: { conversation: string }; query: { owner?: string | null }; body: null; answer: IncognitoAnswer };
  list_conversations: { path: { space: string }; query: { limit?: number; turn?: string | null }; body: null; answer: Conversations };
  list_memories: { path: { space: string }; query: { kind?: Kind | null; target?: Target | null; agent?: string | null; project?: string | null; said_in?: string | null; pinned?: boolean | null; firm?: boolean | null; since?: string | null; until?: string | null; metadata?: string | null; limit?: number; before?: string | null }; body: null; answer: Memories };
  list_operations: { path: { space: string }; query: { limit?: number }; body: null; answer: Operations };
  list_proposals: { path: { space: string }; query: { limit?: number; before?: string | null; conversation?: string | null }; body: null; answer: Proposals };
  list_reviews: { path: { space: string }; query: { limit?: number; before?: string | null; conversation?: string | null }; body: null; answer: Reviews };
  list_spaces: { path: {}; query: {}; body: null; answer: Spaces };
  memory_history: { path: { space: string; memory: string }; query: {}; body: null; answer: History };
  preview: { path: { space: string }; query: {}; body: ForgetBody; answer: ForgetPreview };
  profile: { path: { space: string }; query: { limit?: number; project?: string | null }; body: null; answer: Profile };
  reject: { path: { space: string; memory: string }; query: {}; body: null; answer: Changed };
  reject_many: { path: { space: string }; query: {}; body: DecisionBody; answer: Decided };
  replay: { path: { conversation: string }; query: {}; body: ReplayBody; answer: Replay };
  reset: { path: { conversation: string }; query: {}; body: PlainBody; answer: Done };
  run_review: { path: { space: string }; query: {}; body: ReviewRun; answer: ReviewRan };
  search: { path: { space: string }; query: { kind?: Kind | null; target?: Target | null; agent?: string | null; project?: string | null; said_in?: string | null; pinned?: boolean | null; firm?: boolean | null; since?: string | null; until?: string | null; metadata?: string | null; query: string; limit?: number; lane?: Lane[] | null; conversation?: string | null; as_of?: string | null; score_min?: number | null }; body: null; answer: SearchAnswer };
  set_firm: { path: { space: string; memory: string }; query: {}; body: FirmBody; answer: Changed };
  set_incognito: { path: { conversation: string }; query: {}; body: IncognitoBody; answer: IncognitoAnswer };
  space_stats: { path: { space: string }; query: {}; body: null; answer: SpaceStats };
  space_usage: { path: { space: string }; query: { limit?: number }; body: null; answer: Usage };
  standing: { path: { conversation: string }; query: {}; body: StandingBody; answer: TextAnswer };
  standing_audit: { path: { space: string }; query: { conversation?: string | null; agent?: string | null; project?: string | null; left_out?: boolean }; body: null; answer: StandingAudit };
  start_turn: { path: {}; query: {}; body: TurnStart; answer: TurnState };
  stats: { path: {}; query: {}; body: null; answer: Stats };
  trace: { path: { conversation: string }; query: { owner?: string | null; turn?: string | null; limit?: number }; body: null; answer: Trace };
  undo: { path: { space: string }; query: {}; body: UndoBody; answer: Undone };
  undo_review: { path: { space: string; review: string }; query: {}; body: null; answer: UndoneAll };
  update_memory: { path: { space: string; memory: string }; query: {}; body: MemoryChange; answer: Changed };
  usage: { path: {}; query: { limit?: number }; body: null; answer: Usage };
  wait: { path: { turn: string }; query: {}; body: TurnWait; answer: TurnState };
  why: { path: { conversation: string }; query: { memory: string; owner?: string | null; turn?: string | null; look_in?: string[] | null }; body: null; answer: WhyAnswers };
}

export const ROUTES = {
  abort: ["POST", "/turns/{turn}/abort"],
  add_memory: ["POST", "/spaces/{space}/memories"],
  approve: ["POST", "/spaces/{space}/proposals/{memory}/approve"],
  approve_many: ["POST", "/spaces/{space}/proposals/approve"],
  before_tool: ["POST", "/turns/{turn}/before_tool"],
  before_tool_outside: ["POST", "/conversations/{conversation}/before_tool"],
  block: ["POST", "/turns/{turn}/block"],
  briefing: ["POST", "/conversations/{conversation}/briefing"],
  compacted: ["POST", "/conversations/{conversation}/compacted"],
  compacting: ["POST", "/conversations/{conversation}/compacting"],
  cue: ["POST", "/turns/{turn}/cue"],
  delete_memory: ["DELETE", "/spaces/{space}/memories/{memory}"],
  edit_proposal: ["POST", "/spaces/{space}/proposals/{memory}/edit"],
  events: ["GET", "/events"],
  expect: ["POST", "/conversations/{conversation}/expect"],
  export: ["GET", "/spaces/{space}/export"],
  finish: ["POST", "/turns/{turn}/finish"],
  forget: ["POST", "/spaces/{space}/forget"],
  get_memory: ["GET", "/spaces/{space}/memories/{memory}"],
  get_proposal: ["GET", "/spaces/{space}/proposals/{memory}"],
  get_review: ["GET", "/spaces/{space}/reviews/{review}"],
  hide_standing: ["PUT", "/spaces/{space}/memories/{memory}/standing"],
  inject: ["POST", "/turns/{turn}/inject"],
  interject: ["POST", "/turns/{turn}/interject"],
  is_incognito: ["GET", "/conversations/{conversation}/incognito"],
  list_conversations: ["GET", "/spaces/{space}/conversations"],
  list_memories: ["GET", "/spaces/{space}/memories"],
  list_operations: ["GET", "/spaces/{space}/operations"],
  list_proposals: ["GET", "/spaces/{space}/proposals"],
  list_reviews: ["GET", "/spaces/{space}/reviews"],
  list_spaces: ["GET", "/spaces"],
  memory_history: ["GET", "/spaces/{space}/memories/{memory}/history"],
  preview: ["POST", "/spaces/{space}/forget/preview"],
  profile: ["GET", "/spaces/{space}/profile"],
  reject: ["POST", "/spaces/{space}/proposals/{memory}/reject"],
  reject_many: ["POST", "/spaces/{space}/proposals/reject"],
  replay: ["POST", "/conversations/{conversation}/replay"],
  reset: ["POST", "/conversations/{conversation}/reset"],
  run_review: ["POST", "/spaces/{space}/reviews"],
  search: ["GET", "/spaces/{space}/search"],
  set_firm: ["PUT", "/spaces/{space}/memories/{memory}/firm"],
  set_incognito: ["PUT", "/conversations/{conversation}/incognito"],
  space_stats: ["GET", "/spaces/{space}/stats"],
  space_usage: ["GET", "/spaces/{space}/usage"],
  standing: ["POST", "/conversations/{conversation}/standing"],
  standing_audit: ["GET", "/spaces/{space}/standing"],
  start_turn: ["POST", "/turns"],
  stats: ["GET", "/stats"],
  trace: ["GET", "/conversations/{conversation}/trace"],
  undo: ["POST", "/spaces/{space}/undo"],
  undo_review: ["POST", "/spaces/{space}/reviews/{review}/undo"],
  update_memory: ["PUT", "/spaces/{space}/memories/{memory}"],
  usage: ["GET", "/usage"],
  wait: ["POST", "/turns/{turn}/wait"],
  why: ["GET", "/conversations/{conversation}/why"],
} as const;
