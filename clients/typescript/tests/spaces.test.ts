import assert from "node:assert/strict";
import test from "node:test";
import { CAT, connect, fresh, QUESTION, ANSWER } from "./server.js";

test("a memory is added once, found, changed, deleted and brought back", async () => {
  // A name with a slash and a space is one segment of the path.
  const space = connect().space(`project:${fresh("a")}/b c`);
  const added = await space.add(CAT, { metadata: { team: "pets" }, occurred_at: "2026-01-02T03:04:05Z" });
  assert.equal(added.created, true);
  assert.equal((await space.add(CAT)).created, false);
  const { id } = added.entry;
  const hits = (await space.search("cat food", { limit: 3, score_min: 0, metadata: { team: "pets" } })).hits;
  assert.equal(hits[0]?.entry.id, id);
  assert.deepEqual((await space.search("cat food", { lane: ["short_term"] })).hits, []);
  assert.deepEqual((await space.list({ metadata: { team: "other" } })).memories, []);
  assert.equal((await space.list({ since: new Date("2026-01-01") })).memories.length, 1);
  assert.equal((await space.list({ until: new Date("2026-01-01") })).memories.length, 0);

  const changed = await space.update(id, "My cat Miso is allergic to beef.", { expected_version: 1 });
  assert.equal(changed.entry.version, 2);
  await assert.rejects(space.update(id, "Too late.", { expected_version: 1 }), { type: "Conflict", status: 409 });
  assert.equal((await space.get(id, { version: 1 })).text, CAT);
  await space.undo(changed.operation);
  assert.equal((await space.get(id)).text, CAT);

  const deleted = await space.delete(id);
  assert.deepEqual((await space.list()).memories, []);
  await space.undo(deleted.operation);
  assert.equal((await space.list()).memories.length, 1);
  const verbs = (await space.operations()).map((one) => one.verb);
  assert.deepEqual(verbs, ["undo", "delete", "undo", "update", "add"]);
  assert.equal((await space.history(id)).versions.length >= 2, true);
  assert.equal((await space.setFirm(id, true)).entry.firm, true);
  await space.hideStanding(id, true);
  assert.equal((await space.stats()).searchable, 1);
  assert.ok((await connect().spaces()).some((one) => one.name === space.name));
});

test("all memories are listed page by page", async () => {
  const space = connect().space(`user:${fresh("ada")}`);
  const said = ["Ada keeps bees.", "The dentist is in Oak Street.", "Sundays are for chess."];
  for (const text of said) await space.add(text);
  const listed: string[] = [];
  for await (const entry of space.listAll({ limit: 1 })) listed.push(entry.text);
  assert.deepEqual(listed, said.reverse());
});

test("a space is exported as a stream of rows, and forgotten", async () => {
  const space = connect().space(`user:${fresh("ada")}`);
  await space.add("Café 🐈 Miso\u2028is here.");
  const rows: Record<string, unknown>[] = [];
  for await (const row of space.export()) rows.push(row);
  assert.match(JSON.stringify(rows), /Café 🐈 Miso/);
  assert.ok(rows.length >= 3);
  assert.deepEqual((await space.profile()).space, space.name);
  assert.ok((await space.standing()).length >= 1);
  assert.equal((await space.forgetPreview({ everything: true })).matching, 1);
  assert.equal((await space.forget({ everything: true })).erased, 1);
  assert.deepEqual((await space.list()).memories, []);
  await assert.rejects(space.forget({}), { type: "InvalidInput", status: 400 });
});

test("proposals are approved, rejected and edited", async () => {
  const space = connect().space(`user:${fresh("ada")}`);
  const propose = async (what: string): Promise<string> => {
    const added = await space.add(`Prefers ${what} answers.`, { origin: "agent", metadata: { kind: "preference" } });
    assert.equal(added.entry.status, "proposed");
    return added.entry.id;
  };
  const [first, second, third] = [await propose("short"), await propose("long"), await propose("polite")] as const;
  assert.deepEqual((await space.proposals()).proposals.map((one) => one.id), [third, second, first]);
  assert.equal((await space.proposal(first)).obstacle, "");
  const approved = await space.approve(first);
  assert.equal(approved.entry.status, "active");
  await space.undo(approved.operation);
  await space.undo((await space.reject(second)).operation);
  assert.equal((await space.editProposal(third, "Prefers kind answers.")).changed.length, 2);
  const decided = await space.approveAll([first, "06gyhh9w1wh6e297"]);
  assert.deepEqual(Object.keys(decided.skipped), ["06gyhh9w1wh6e297"]);
  assert.equal((await space.rejectAll([second])).changed.length, 1);
  assert.deepEqual((await space.proposals()).proposals, []);
});

test("a review is run, read and undone", async () => {
  const owner = `user:${fresh("ada")}`;
  const conversation = connect().conversation(fresh("chat"), { owner });
  const said = { role: "user", content: "Call me Max from now on." };
  const turn = await conversation.start([said]);
  await turn.finish([said, ANSWER]);
  const space = connect().space(owner);
  await space.runReview(conversation.id, { rules: true });
  const saved = (await space.reviews()).reviews.find((one) => one.state === "saved")?.id ?? "";
  assert.match((await space.review(saved)).changes[0]?.after?.text ?? "", /Max/);
  assert.ok((await space.undoReview(saved)).length >= 1);
  assert.deepEqual(await space.conversations(), [conversation.id]);
  assert.deepEqual(await space.usage(), []);
});

test("usage and stats are those of the tenant, and any route can be called by its name", async () => {
  assert.equal((await connect().stats()).tenant, "default");
  assert.ok(Array.isArray(await connect().usage({ limit: 10 })));
  const space = `user:${fresh("ada")}`;
  await connect().request("add_memory", { path: { space }, body: { text: CAT } });
  const found = await connect().request("search", { path: { space }, query: { query: QUESTION.content } });
  assert.equal(found.hits[0]?.entry.text, CAT);
});
