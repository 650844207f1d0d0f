import { commands, extensions, window, workspace } from "vscode";
import type { Event, ExtensionContext } from "vscode";
import { LanguageClient } from "vscode-languageclient/node";
import type { LanguageClientOptions, ServerOptions } from "vscode-languageclient/node";

import { findCommand } from "./find";

const LANGUAGES = ["python", "yaml", "json", "shellscript", "dockerfile", "makefile"];

/** What the Python extension tells about interpreters. */
interface PythonApi {
  readonly environments: {
    getActiveEnvironmentPath(): { readonly path: string };
    readonly onDidChangeActiveEnvironmentPath: Event<unknown>;
  };
}

let client: LanguageClient | undefined;

export async function activate(context: ExtensionContext): Promise<void> {
  const python = await pythonApi();
  const restart = (): Promise<void> => start(python);
  context.subscriptions.push(
    commands.registerCommand("fsdplint.restart", restart),
    workspace.onDidChangeConfiguration(async (event) => {
      if (event.affectsConfiguration("fsdplint.path")) {
        await restart();
      }
    }),
  );
  if (python) {
    context.subscriptions.push(python.environments.onDidChangeActiveEnvironmentPath(restart));
  }
  await start(python);
}

export async function deactivate(): Promise<void> {
  await client?.stop();
}

async function start(python: PythonApi | undefined): Promise<void> {
  await client?.stop();
  const configured = workspace.getConfiguration("fsdplint").get<string>("path", "");
  const command = findCommand(configured, python?.environments.getActiveEnvironmentPath().path);
  const server: ServerOptions = { command, args: ["server"] };
  const options: LanguageClientOptions = {
    documentSelector: [
      // Settings and launch lines as well; the server leaves other files of these languages alone.
      ...LANGUAGES.map((language) => ({ scheme: "file", language })),
      { notebook: "jupyter-notebook", language: "python" },
    ],
    initializationOptions: workspace.getConfiguration("fsdplint"),
    synchronize: { configurationSection: "fsdplint" },
  };
  client = new LanguageClient("fsdplint", "fsdplint", server, options);
  try {
    await client.start();
  } catch (error) {
    client = undefined;
    const reason = error instanceof Error ? error.message : String(error);
    void window.showErrorMessage(
      `Run "pip install 'fsdplint[server]'" or set fsdplint.path. Cannot start ${command}: ${reason}`,
    );
  }
}

async function pythonApi(): Promise<PythonApi | undefined> {
  const extension = extensions.getExtension<PythonApi>("ms-python.python");
  return extension?.activate();
}
