"use strict";

const assert = require("node:assert/strict");
const { test } = require("node:test");

const { findCommand } = require("../out/find");

const none = () => false;

test("the configured command comes first", () => {
  assert.equal(findCommand("/opt/fsdplint", "/venv/bin/python", () => true), "/opt/fsdplint");
});

test("the interpreter's own command is found beside it", () => {
  const own = "/venv/bin/fsdplint";
  assert.equal(findCommand("", "/venv/bin/python", (file) => file === own), own);
});

test("without one it is that on the PATH", () => {
  assert.equal(findCommand("", "/venv/bin/python", none), "fsdplint");
  assert.equal(findCommand("", undefined, none), "fsdplint");
});
