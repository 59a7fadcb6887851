import assert from "node:assert/strict";
import test, { type TestContext } from "node:test";
import { Afterturn, AfterturnError } from "afterturn";
import { ANSWER, connect, conversationAboutTheCat, copy, QUESTION, serve } from "./server.js";

/** A server that answers with these statuses, one for each request, and then as the real one. */
async function failing(t: TestContext, ...statuses: number[]): Promise<{ url: string; requests: string[] }> {
  const requests: string[] = [];
  const server = await serve(async (request, response, pass) => {
    requests.push(`${request.method} ${request.url}`);
    const status = statuses.shift();
    if (status === undefined) return copy(await pass(), response);
    response.writeHead(status, { "retry-after": "0", "content-type": "application/json" });
    response.end(JSON.stringify({ error: { type: "StoreLocked", message: "The store is locked." } }));
  });
  t.after(server.close);
  return { url: server.url, requests };
}

/** An address where nothing listens. */
async function nobody(): Promise<string> {
  const server = await serve(() => undefined);
  server.close();
  return server.url;
}

test("a request is repeated after 503 and 429", async (t) => {
  const { url, requests } = await failing(t, 503, 429, 503);
  assert.ok(Array.isArray(await connect({ url }).spaces()));
  assert.equal(requests.length, 4);
});

test("repetitions end, and the error has type, status and message", async (t) => {
  const { url, requests } = await failing(t, 503, 503, 503, 503);
  const expected = { name: "AfterturnError", type: "StoreLocked", status: 503, message: "The store is locked.", retryAfter: 0 };
  await assert.rejects(connect({ url, retries: 1 }).spaces(), expected);
  assert.equal(requests.length, 2);
});

test("a change of memories is repeated after 429 only", async (t) => {
  const limited = await failing(t, 429);
  assert.equal((await connect({ url: limited.url }).space("user:limited").add("Ada keeps bees.")).created, true);
  const unavailable = await failing(t, 503);
  await assert.rejects(connect({ url: unavailable.url }).space("user:limited").add("Ada keeps goats."), { status: 503 });
  assert.equal(unavailable.requests.length, 1);
});

test("what is wrong is not repeated", async (t) => {
  const { url, requests } = await failing(t);
  const memory = connect({ url });
  await assert.rejects(memory.space("not a space").list(), { type: "InvalidInput", status: 400 });
  await assert.rejects(memory.space("user:ada").get("06gyhh9w1wh6e297"), { type: "NotFound", status: 404 });
  await assert.rejects(connect({ url, token: "wrong" }).spaces(), { status: 401 });
  assert.equal(requests.length, 3);
});

test("a server that does not answer meets the deadline", async (t) => {
  const silent = await serve(() => undefined);
  t.after(silent.close);
  const error = await connect({ url: silent.url, timeout: 0.05 }).spaces().catch((found: unknown) => found);
  assert.ok(error instanceof AfterturnError);
  assert.deepEqual([error.type, error.status, error.isTemporary], ["DeadlineExceeded", 0, true]);
});

test("a pause that is longer than the deadline is not begun", async (t) => {
  const busy = await serve((_, response) => {
    response.writeHead(429, { "retry-after": "3600" }).end();
  });
  t.after(busy.close);
  await assert.rejects(connect({ url: busy.url }).spaces(), { status: 429, retryAfter: 3600 });
});

test("the caller's signal ends a call with its reason, also if errors are reported", async (t) => {
  let arrived: () => void;
  const waiting = new Promise<void>((resolve) => (arrived = resolve));
  const silent = await serve(() => arrived());
  t.after(silent.close);
  const reported: AfterturnError[] = [];
  const memory = connect({ url: silent.url, onTurnError: (error) => reported.push(error) });
  const controller = new AbortController();
  const started = memory.conversation("c", { owner: "user:ada" }).start([QUESTION], {}, { signal: controller.signal });
  await waiting;
  controller.abort(new Error("the user pressed stop"));
  await assert.rejects(started, { message: "the user pressed stop" });
  await assert.rejects(memory.spaces({ signal: controller.signal }), { message: "the user pressed stop" });
  assert.deepEqual(reported, []);
});

test("without a server, errors are thrown", async () => {
  const memory = connect({ url: await nobody(), retries: 0 });
  await assert.rejects(memory.conversation("c", { owner: "user:ada" }).start([QUESTION]), {
    type: "ConnectionFailed",
    status: 0,
  });
});

test("with onTurnError, a turn goes on without a server", async () => {
  const reported: AfterturnError[] = [];
  const memory = connect({ url: await nobody(), retries: 0, onTurnError: (error) => reported.push(error) });
  const conversation = memory.conversation("c", { owner: "user:ada" });
  const messages: object[] = [QUESTION];
  assert.equal(await conversation.standing(), "");
  const turn = await conversation.start(messages);
  assert.deepEqual(await turn.inject(messages), []);
  assert.deepEqual(messages, [QUESTION]);
  assert.equal(await turn.block(), "");
  assert.deepEqual(await turn.beforeTool("bash", {}), { rules: [], text: "", refusal: null });
  const state = await turn.finish([...messages, ANSWER]);
  assert.equal(state.recorded, false);
  assert.match(state.reason, /cannot be reached/);
  assert.equal(reported.length, 6);
  assert.ok(reported.every((error) => error.type === "ConnectionFailed"));
  // What does not belong to a turn, or must not fail in silence, is thrown.
  await assert.rejects(conversation.setIncognito(true), AfterturnError);
  await assert.rejects(memory.space("user:ada").search("bees"), AfterturnError);
});

test("with onTurnError, a turn that could not be started is started by its next verb", async (t) => {
  const { url } = await failing(t, 503);
  const reported: AfterturnError[] = [];
  const memory = connect({ url, retries: 0, onTurnError: (error) => reported.push(error) });
  const conversation = await conversationAboutTheCat(memory);
  const messages: object[] = [QUESTION];
  const turn = await conversation.start(messages);
  assert.equal(reported.length, 1);
  await turn.inject(messages, { within: 20 });
  assert.match(JSON.stringify(messages), /Miso/);
  assert.equal((await turn.finish([...messages, ANSWER])).recorded, true);
  assert.equal(reported.length, 1);
});

test("an answer that is not from afterturn is an error that says so", async (t) => {
  const gateway = await serve((request, response) => {
    if (request.url?.startsWith("/moved")) response.writeHead(301, { location: "https://memory.example.org/x" }).end();
    else if (request.url?.startsWith("/page")) response.writeHead(200).end("<html>");
    else response.writeHead(404, { "content-type": "text/html" }).end("<h1>Nothing here</h1>");
  });
  t.after(gateway.close);
  await assert.rejects(connect({ url: gateway.url }).spaces(), { type: "HttpError", status: 404, message: /Nothing here/ });
  await assert.rejects(connect({ url: `${gateway.url}/moved` }).spaces(), { message: /redirects to https:\/\/memory\.example\.org/ });
  await assert.rejects(connect({ url: `${gateway.url}/page` }).spaces(), AfterturnError);
});

test("what cannot be sent is refused with a reason", async () => {
  assert.throws(() => new Afterturn({ url: "localhost:7433" }), /not an http/);
  assert.throws(() => new Afterturn({ token: "abc\n" }), /line breaks/);
  await assert.rejects(async () => connect().conversation("..", { owner: "user:ada" }).trace(), /cannot be the name/);
  const found = await new Afterturn({ url: `${process.env["MEMORY_URL"]}/api/v1/`, token: process.env["AFTERTURN_TOKEN"] }).spaces();
  assert.ok(Array.isArray(found));
});
