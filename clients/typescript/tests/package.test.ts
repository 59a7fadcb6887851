import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import test from "node:test";
import { fileURLToPath } from "node:url";

const FOLDER = new URL("../../", import.meta.url);

test("the example of the README runs", () => {
  const example = readFileSync(new URL("examples/chat.ts", FOLDER), "utf-8");
  assert.ok(readFileSync(new URL("README.md", FOLDER), "utf-8").includes(example));
  const printed = execFileSync(process.execPath, [fileURLToPath(new URL("build/examples/chat.js", FOLDER))], { encoding: "utf-8" });
  assert.match(printed, /Miso is allergic to chicken/);
  assert.match(printed, /recorded: true/);
});

test("the package has the built files, their types and no dependency", () => {
  const packed = execFileSync("npm", ["pack", "--dry-run", "--json", "--ignore-scripts", "--loglevel=silent"], {
    cwd: FOLDER,
    encoding: "utf-8",
  });
  const found = JSON.parse(packed) as { files: { path: string }[] }[] | Record<string, { files: { path: string }[] }>;
  const files = Object.values(found)[0]?.files.map((one) => one.path) ?? [];
  const parts = ["conversation", "errors", "events", "index", "schema", "space", "transport"];
  const built = parts.flatMap((name) => [`dist/${name}.d.ts`, `dist/${name}.js`]);
  assert.deepEqual(files.sort(), ["LICENSE", "README.md", ...built, "package.json"].sort());
  const manifest = JSON.parse(readFileSync(new URL("package.json", FOLDER), "utf-8")) as Record<string, unknown>;
  assert.equal(manifest["dependencies"], undefined);
});
