/** The real server that `make test-typescript` has started, its command line, and a proxy in front of it that fails. */
import { execFileSync } from "node:child_process";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { Readable } from "node:stream";
import { Afterturn, type ClientOptions, type Conversation, type Inserted } from "afterturn";

export const CAT = "My cat Miso is allergic to chicken.";
export const QUESTION = { role: "user", content: "What food is my cat allergic to?" };
export const ANSWER = { role: "assistant", content: "Chicken." };

function variable(name: string): string {
  const found = process.env[name];
  if (found === undefined) throw new Error(`${name} is not set. Run the tests with \`make test-typescript\`.`);
  return found;
}

export const URL_OF_SERVER = variable("MEMORY_URL");

export function connect(options: ClientOptions = {}): Afterturn {
  return new Afterturn({ url: URL_OF_SERVER, token: variable("AFTERTURN_TOKEN"), ...options });
}

/** What `afterturn` prints for these arguments. */
export function afterturn(...args: string[]): string {
  return execFileSync(variable("PYTHON"), ["-m", "afterturn", ...args], { encoding: "utf-8" }).trim();
}

let count = 0;

/** A name that no other test has. */
export function fresh(kind: string): string {
  count += 1;
  return `${kind}${process.pid}-${count}`;
}

/** A space with the cat, and a conversation in it without a standing block. */
export async function conversationAboutTheCat(memory: Afterturn): Promise<Conversation> {
  const owner = `user:${fresh("ada")}`;
  await connect().space(owner).add(CAT);
  return memory.conversation(fresh("chat"), { owner, standing: "off" });
}

export function text(inserted: Inserted[]): string {
  return JSON.stringify(inserted);
}

type Answer = (request: IncomingMessage, response: ServerResponse, pass: () => Promise<Response>) => void | Promise<void>;

/** An HTTP server on a free port. `pass` sends the request on to the real server. */
export async function serve(answer: Answer): Promise<{ url: string; close: () => void; cut: () => void }> {
  const server = createServer((request, response) => {
    const pass = async (): Promise<Response> => {
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk as Buffer);
      const { host: _, connection: __, "content-length": ___, ...headers } = request.headers;
      const init: RequestInit = { method: request.method ?? "GET", headers: headers as Record<string, string> };
      if (chunks.length > 0) init.body = Buffer.concat(chunks);
      return fetch(URL_OF_SERVER + (request.url ?? ""), init);
    };
    Promise.resolve(answer(request, response, pass)).catch(() => response.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const cut = (): void => server.closeAllConnections();
  const close = (): void => {
    cut();
    server.close();
  };
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, close, cut };
}

/** Copies the real server's answer. */
export async function copy(found: Response, response: ServerResponse): Promise<void> {
  response.writeHead(found.status, { "content-type": found.headers.get("content-type") ?? "" });
  response.flushHeaders();
  if (found.body === null) {
    response.end();
    return;
  }
  const body = Readable.fromWeb(found.body as never).on("error", () => response.destroy());
  response.on("close", () => body.destroy());
  body.pipe(response);
}
