// Prints what GitHub's language service finds wrong in a file, a line each.
import { validate } from "@actions/languageservice";
import fs from "node:fs";
import { TextDocument } from "vscode-languageserver-textdocument";

const file = process.argv[2];
const document = TextDocument.create(`file://${file}`, "yaml", 0, fs.readFileSync(file, "utf8"));
validate(document, {}).then((wrong) => wrong.forEach(({ message }) => console.log(message)));
