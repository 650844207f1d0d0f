import { existsSync } from "node:fs";
import { dirname, join } from "node:path";

/**
 * Return the command that starts fsdplint: the configured one, else the one beside the interpreter,
 * else the one on the PATH.
 */
export function findCommand(
  configured: string,
  interpreter: string | undefined,
  exists: (file: string) => boolean = existsSync,
): string {
  if (configured) {
    return configured;
  }
  if (interpreter) {
    for (const name of ["fsdplint", "fsdplint.exe", join("Scripts", "fsdplint.exe")]) {
      const file = join(dirname(interpreter), name);
      if (exists(file)) {
        return file;
      }
    }
  }
  return "fsdplint";
}
