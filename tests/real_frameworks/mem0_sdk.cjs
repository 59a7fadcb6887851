// Calls mem0's SDK for Node: reads one JSON object a line, {"method", "args"}, and answers each with a line.
const { createRequire } = require("module");
const readline = require("readline");

const [folder, host, apiKey] = process.argv.slice(2);
const { MemoryClient } = createRequire(folder + "/")("mem0ai");
const client = new MemoryClient({ apiKey, host });

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { method, args } = JSON.parse(line);
    let answer;
    try {
      answer = { result: (await client[method](...args)) ?? null };
    } catch (error) {
      answer = { error: { name: error.name, message: error.message, code: error.errorCode ?? "" } };
    }
    process.stdout.write(JSON.stringify(answer) + "\n");
  }
}

main();
