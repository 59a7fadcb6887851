// One conversation by Vercel's AI SDK: node talk.mjs BASE_URL HEADERS API TEXT...
// Prints a line of JSON for each text that the model answers, with the tools that it has called.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const [baseURL, headers, api, ...texts] = process.argv.slice(2);
const options = { baseURL, apiKey: "sk-client", headers: JSON.parse(headers) };
const model = {
  chat: () => createOpenAI(options).chat("gpt-5"),
  responses: () => createOpenAI(options).responses("gpt-5"),
  messages: () => createAnthropic(options)("claude"),
}[api]();

const look_up = tool({
  description: "Looks something up.",
  inputSchema: z.object({ what: z.string() }),
  execute: async ({ what }) => `Nothing about ${what}.`,
});

const messages = [];
for (const [number, text] of texts.entries()) {
  messages.push({ role: "user", content: text });
  const given = { model, messages, tools: { look_up }, stopWhen: stepCountIs(5), maxRetries: 0, system: "Be terse." };
  const answer = number % 2 ? streamText(given) : await generateText(given);
  const said = await answer.text;
  const steps = await answer.steps;
  messages.push(...(await answer.response).messages);
  console.log(JSON.stringify({ said, calls: steps.flatMap((step) => step.toolCalls.map((call) => call.input.what)) }));
}
