import { AfterturnError } from "./errors.js";
import type { Transport } from "./transport.js";

/** Something that memory did, with a name of afterturn's events. It has ids, counts and reasons, never texts. */
export interface MemoryEvent {
  name: string;
  /** Unix seconds. */
  at: number;
  tenant: string;
  /** Empty if the event is about the whole tenant. */
  space: string;
  conversation: string;
  turn: string;
  data: Record<string, unknown>;
}

export interface EventOptions {
  /** Only events of these spaces. */
  spaces?: string[];
  signal?: AbortSignal;
  /**
   * Called when the server has begun to listen for events: `again` is false for the first time. Events that happened
   * while there was no stream are not sent later, so read what you show again.
   */
  onOpen?: (again: boolean) => void;
}

// The server sends a comment every 15 seconds, so a stream that is silent for longer is dead.
const SILENCE = 45;
const PAUSE_MIN = 0.2;
const PAUSE_MAX = 30;

/**
 * The events from now on. Connects again, with growing pauses, when a stream ends or breaks off. Ends when `signal` is
 * aborted, and throws if the server refuses the request, such as for a token that was revoked.
 */
export async function* streamEvents(
  transport: Transport,
  options: EventOptions,
): AsyncGenerator<MemoryEvent, void, undefined> {
  const { signal, onOpen } = options;
  const parts = { query: { space: options.spaces ?? null } };
  let again = false;
  for (let pause = PAUSE_MIN; ; pause = Math.min(pause * 2, PAUSE_MAX)) {
    try {
      let data: string[] = [];
      let isOpen = false;
      for await (const line of transport.lines("events", parts, { signal, timeout: SILENCE })) {
        if (!isOpen) {
          // The server writes its first line when it has begun to listen, which is after it has answered.
          isOpen = true;
          pause = PAUSE_MIN;
          onOpen?.(again);
          again = true;
        }
        if (line.startsWith("data:")) data.push(line.slice(5).trimStart());
        if (line !== "" || data.length === 0) continue;
        yield JSON.parse(data.join("\n")) as MemoryEvent;
        data = [];
      }
    } catch (error) {
      if (signal?.aborted) return;
      if (!(error instanceof AfterturnError) || !error.isTemporary) throw error;
    }
    if (signal?.aborted) return;
    await waitFor(pause * (1 + Math.random()), signal);
    if (signal?.aborted) return;
  }
}

async function waitFor(seconds: number, signal: AbortSignal | undefined): Promise<void> {
  await new Promise<void>((resolve) => {
    const done = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, seconds * 1000);
    signal?.addEventListener("abort", done);
  });
}
