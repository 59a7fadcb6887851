import assert from "node:assert/strict";
import test from "node:test";
import { applyInserted, type AfterturnError } from "afterturn";
import { afterturn, ANSWER, connect, conversationAboutTheCat, copy, fresh, QUESTION, serve, text } from "./server.js";

test("a turn gets its block, and its messages are recorded", async () => {
  const conversation = await conversationAboutTheCat(connect());
  const messages: object[] = [QUESTION];
  const turn = await conversation.start(messages);
  const inserted = await turn.inject(messages, { within: 20 });
  assert.equal(messages.length, 2);
  assert.match(text(inserted), /Miso is allergic to chicken/);
  assert.deepEqual(messages[1], inserted[0]?.element);

  const rebuilt: object[] = [QUESTION];
  assert.deepEqual(await turn.inject(rebuilt), inserted);
  assert.deepEqual(rebuilt, messages);

  const state = await turn.finish([...messages, ANSWER]);
  assert.deepEqual(state, { turn: turn.id, status: "completed", recorded: true, reason: "" });
  assert.deepEqual(await turn.wait(), state);
  const found = await connect().space(conversation.where.owner ?? "").list({ kind: "record", said_in: conversation.id });
  assert.deepEqual(found.memories.map((one) => one.text).sort(), [ANSWER.content, QUESTION.content]);
});

test("blocks are applied in order, and a list that is too short is refused", () => {
  const element = { role: "user", content: "block" };
  const messages: object[] = [QUESTION, ANSWER];
  applyInserted(messages, [
    { index: 0, element, replaces: true },
    { index: 1, element, replaces: false },
    { index: 3, element, replaces: false },
  ]);
  assert.deepEqual(messages, [element, element, ANSWER, element]);
  assert.throws(() => applyInserted([], [{ index: 0, element, replaces: true }]), RangeError);
  assert.throws(() => applyInserted([QUESTION], [{ index: 2, element, replaces: false }]), RangeError);
});

test("a merged block replaces the user's message", async () => {
  const { id, where } = await conversationAboutTheCat(connect());
  const messages: object[] = [QUESTION];
  const turn = await connect().conversation(id, { ...where, placement: "merge" }).start(messages);
  await turn.inject(messages, { within: 20 });
  assert.equal(messages.length, 1);
  assert.match(JSON.stringify(messages), /Miso is allergic to chicken/);
  await turn.abort();
});

test("a turn is continued by another client", async () => {
  const conversation = await conversationAboutTheCat(connect());
  await conversation.start([QUESTION], { turn: "message-7", speaker: "Ada" });
  const { id, where } = conversation;
  const turn = connect().conversation(id, where).turn("message-7");
  assert.match(await turn.block({ within: 20 }), /Miso is allergic to chicken/);
  assert.equal((await turn.finish([QUESTION, ANSWER], { within: 20 })).recorded, true);
  await assert.rejects(turn.inject([QUESTION]), { type: "Conflict", status: 409 });
});

test("what the user adds and what the agent looks for is recalled in the same turn", async () => {
  const conversation = await conversationAboutTheCat(connect());
  const space = connect().space(conversation.where.owner ?? "");
  await space.add("The spare key is under the blue flower pot.");
  const messages: object[] = [{ role: "user", content: "Hello there." }];
  const turn = await conversation.start(messages);
  const more = { role: "user", content: "Where is the spare key?" };
  messages.push(more);
  await turn.interject(more.content);
  await turn.inject(messages, { within: 20 });
  assert.match(JSON.stringify(messages), /flower pot/);
  assert.equal((await turn.cue(QUESTION.content)).status, "open");
  assert.match(await turn.block({ within: 20 }), /Miso/);
});

test("an aborted turn is not recorded", async () => {
  const conversation = await conversationAboutTheCat(connect());
  const turn = await conversation.start([QUESTION]);
  const state = await turn.abort("stopped by the user");
  assert.deepEqual([state.status, state.recorded], ["aborted", false]);
  assert.equal((await turn.finish([QUESTION, ANSWER])).status, "aborted");
});

test("a firm rule refuses a tool call, in and outside of a turn", async () => {
  const conversation = await conversationAboutTheCat(connect());
  await connect().space(conversation.where.owner ?? "").add("Never use npm, we use pnpm here.", { firm: true });
  const turn = await conversation.start([QUESTION]);
  const call = { command: "npm install left-pad" };
  const advice = await turn.beforeTool("bash", call);
  assert.match(advice.refusal ?? "", /pnpm/);
  assert.deepEqual((await conversation.beforeTool("bash", call)).rules, advice.rules);
  assert.deepEqual((await turn.beforeTool("bash", { command: "git status" })).rules, []);
  await turn.abort();
});

test("a conversation has a standing block, compactions, a briefing and incognito", async () => {
  const { id, where } = await conversationAboutTheCat(connect());
  const conversation = connect().conversation(id, { owner: where.owner ?? null, history: "hidden", project: "heron" });
  assert.match(await conversation.standing(), /Miso/);
  assert.match(await conversation.standing({ refresh: true, instructions: ["Be brief."] }), /Be brief\./);
  await conversation.compacting([QUESTION]);
  await conversation.compacted(null);
  await conversation.expect("What food");
  await conversation.reset();
  assert.equal(await conversation.briefing(), "");
  assert.equal(await conversation.isIncognito(), false);
  await conversation.setIncognito(true);
  assert.equal(await conversation.isIncognito(), true);
});

test("a trace says what was delivered and why, and a replay renders the same bytes", async () => {
  const conversation = await conversationAboutTheCat(connect());
  const messages: object[] = [QUESTION];
  const turn = await conversation.start(messages);
  await turn.inject(messages, { within: 20 });
  await turn.finish([...messages, ANSWER]);
  const trace = await conversation.trace({ limit: 1 });
  assert.equal(trace.turns[0]?.id, turn.id);
  assert.match(trace.turns[0]?.blocks[0]?.text ?? "", /Miso/);
  const shown = trace.turns[0]?.recalls[0]?.shown[0]?.ref ?? "";
  const { answers } = await conversation.why(shown, { turn: turn.id });
  assert.equal(answers[0]?.explained.reason, "it is in the block");
  assert.equal((await conversation.replay({ turn: turn.id })).identical, true);
  const changed = await conversation.replay({ changes: { recall_score_min: 1 } });
  assert.equal(changed.blocks[0]?.changed, "");
});

test("verbs whose answers are lost are repeated, and the turn is recorded once", async () => {
  const seen = new Set<string>();
  const losing = await serve(async (request, response, pass) => {
    const answer = await pass();
    const verb = request.url ?? "";
    if (seen.has(verb)) return copy(answer, response);
    seen.add(verb);
    await answer.arrayBuffer();
    response.destroy();
  });
  try {
    const conversation = await conversationAboutTheCat(connect({ url: losing.url }));
    const messages: object[] = [QUESTION];
    const turn = await conversation.start(messages);
    await turn.inject(messages, { within: 20 });
    assert.match(JSON.stringify(messages), /Miso/);
    assert.equal(messages.length, 2);
    assert.equal((await turn.finish([...messages, ANSWER])).recorded, true);
    assert.equal(seen.size, 3);
    const { id, where } = conversation;
    assert.equal((await connect().conversation(id, where).trace()).turns_total, 1);
  } finally {
    losing.close();
  }
});

test("a token for one space speaks without naming it, and for no other", async () => {
  const owner = `user:${fresh("bob")}`;
  const memory = connect({ token: afterturn("token", "create", "--name", fresh("bot"), "--space", owner) });
  const turn = await memory.conversation(fresh("chat")).start([QUESTION]);
  assert.equal((await turn.finish([QUESTION, ANSWER])).recorded, true);
  assert.equal((await memory.space(owner).list()).memories.length, 2);
  const refused = memory.conversation("other", { owner: "user:eve" }).start([QUESTION]);
  await assert.rejects(refused, (error: AfterturnError) => error.type === "NotAllowed" && error.status === 403);
});
