"use strict";

// The real server, which FSDPLINT names or the PATH has, over the protocol that VS Code speaks.
const assert = require("node:assert/strict");
const { spawn } = require("node:child_process");
const { mkdtempSync, rmSync, writeFileSync } = require("node:fs");
const { tmpdir } = require("node:os");
const { join } = require("node:path");
const { test } = require("node:test");
const { pathToFileURL } = require("node:url");

const rpc = require("vscode-jsonrpc/node");

const TEXT = "x = 1  # fsdplint: ignore[direct-forward]\n";

test("the server sends a diagnostic", { timeout: 120_000 }, async () => {
  const folder = mkdtempSync(join(tmpdir(), "fsdplint-"));
  writeFileSync(join(folder, "pyproject.toml"), "");
  const server = spawn(process.env.FSDPLINT ?? "fsdplint", ["server"]);
  const connection = rpc.createMessageConnection(
    new rpc.StreamMessageReader(server.stdout),
    new rpc.StreamMessageWriter(server.stdin),
  );
  const published = new Promise((resolve) => {
    connection.onNotification("textDocument/publishDiagnostics", resolve);
  });
  connection.listen();
  const root = pathToFileURL(folder).href;
  const { capabilities } = await connection.sendRequest("initialize", {
    processId: process.pid,
    rootUri: root,
    capabilities: {},
  });
  assert.equal(capabilities.textDocumentSync.change, 2);
  await connection.sendNotification("initialized", {});
  const uri = `${root}/idle.py`;
  const textDocument = { uri, languageId: "python", version: 7, text: TEXT };
  await connection.sendNotification("textDocument/didOpen", { textDocument });
  const found = await published;
  assert.equal(found.uri, uri);
  assert.equal(found.version, 7);
  assert.deepEqual(
    found.diagnostics.map(({ code, range }) => [code, range.start.line, range.start.character]),
    [["FSD002", 0, 7]],
  );
  await connection.sendRequest("shutdown");
  const ended = new Promise((resolve) => server.once("exit", resolve));
  await connection.sendNotification("exit");
  assert.equal(await ended, 0);
  rmSync(folder, { recursive: true });
});
