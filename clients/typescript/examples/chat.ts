import { Afterturn } from "afterturn";

const memory = new Afterturn({
  url: process.env.MEMORY_URL,
  token: process.env.AFTERTURN_TOKEN,
  onTurnError: (error) => console.warn("Memory:", error.message),
});
await memory.space("user:ada").add("My cat Miso is allergic to chicken.");

const conversation = memory.conversation("support-42", { owner: "user:ada" });
const messages: object[] = [{ role: "user", content: "What food is my cat allergic to?" }];
const turn = await conversation.start(messages);
await turn.inject(messages, { within: 2 });
messages.push(await callModel(messages));
const { recorded } = await turn.finish(messages);
console.log(messages, "recorded:", recorded);

async function callModel(sent: object[]): Promise<object> {
  return { role: "assistant", content: `A model would answer these ${sent.length} messages.` };
}
