import assert from "node:assert/strict";
import { once } from "node:events";
import test from "node:test";
import { AfterturnError, type MemoryEvent } from "afterturn";
import { afterturn, CAT, connect, copy, fresh, serve } from "./server.js";

/** A promise for each time that a stream begins. */
function openings(): { onOpen: (again: boolean) => void; next: () => Promise<boolean> } {
  const target = new EventTarget();
  const seen: boolean[] = [];
  return {
    onOpen: (again) => {
      seen.push(again);
      target.dispatchEvent(new Event("open"));
    },
    next: async () => {
      if (seen.length === 0) await once(target, "open");
      return seen.shift() as boolean;
    },
  };
}

async function until(events: AsyncGenerator<MemoryEvent, void, undefined>, name: string): Promise<MemoryEvent> {
  for (;;) {
    const { value } = await events.next();
    if (value === undefined) throw new Error(`the events ended before ${name}`);
    if (value.name === name) return value;
  }
}

test("events of a space arrive, also after the connection was cut", async (t) => {
  const cutting = await serve(async (_, response, pass) => copy(await pass(), response));
  t.after(cutting.close);
  const name = `user:${fresh("ada")}`;
  const space = connect().space(name);
  const opened = openings();
  const events = connect({ url: cutting.url }).events({ spaces: [name], onOpen: opened.onOpen });
  const first = until(events, "memory_added");
  assert.equal(await opened.next(), false);
  const { entry } = await space.add(CAT);
  const event = await first;
  assert.equal(event.space, name);
  assert.equal(event.data["memory"], entry.id);
  assert.ok(!JSON.stringify(event).includes("Miso"));

  const second = until(events, "memory_deleted");
  cutting.cut();
  assert.equal(await opened.next(), true);
  await space.delete(entry.id);
  assert.equal((await second).space, name);
  await events.return();
});

test("a signal ends the events without an error, also while nothing happens", async () => {
  const controller = new AbortController();
  const opened = openings();
  const events = connect().events({ signal: controller.signal, onOpen: opened.onOpen });
  const waiting = until(events, "never");
  await opened.next();
  controller.abort();
  await assert.rejects(waiting, /the events ended/);
});

test("leaving the loop closes the connection", async (t) => {
  let left: () => void;
  const gone = new Promise<void>((resolve) => (left = resolve));
  const watching = await serve((_, response) => {
    response.on("close", left);
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(': connected\r\n\r\nevent: memory_added\r\ndata: {"name":\r\ndata: "memory_added"}\r\n\r\n');
  });
  t.after(watching.close);
  for await (const event of connect({ url: watching.url }).events()) {
    assert.equal(event.name, "memory_added");
    break;
  }
  await gone;
});

test("a revoked token ends the events with an error", async () => {
  const name = fresh("watcher");
  const owner = `user:${name}`;
  const token = afterturn("token", "create", "--name", name, "--space", owner);
  const opened = openings();
  const events = connect({ token }).events({ onOpen: opened.onOpen });
  const waiting = until(events, "never");
  await opened.next();
  afterturn("token", "revoke", name);
  // The stream ends at the next event.
  await connect().space(owner).add(CAT);
  await assert.rejects(waiting, (error: unknown) => error instanceof AfterturnError && error.status === 401);
});
