#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles each of the named sources and headers without its neighbors, which finds a missing
include: the presets compile several sources as one text, so a source can use what the one before it
included. Checks the syntax only.

  compile_alone.py COMPILE_COMMANDS FILE...   exits 1 and prints the compiler's messages on an error

Names each source without a compile command, such as all sources of a unity build.
"""

import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys


def tasks_of(commands, files):
    """The compile command of each file. A header is compiled by the source of the same name, which
    includes it first; without such a source, by the flags of a source that includes it or of the
    nearest source."""
    by_file = {pathlib.Path(entry["file"]): entry for entry in commands}
    tasks = {}
    for file in map(pathlib.Path.absolute, map(pathlib.Path, files)):
        source = file if file in by_file else file.with_suffix(".cc")
        if source in by_file:
            tasks[source] = (by_file[source], source)
        elif file.suffix == ".h":
            near = including(by_file, file) or nearest(by_file, file)
            if near:
                tasks[file] = (by_file[near], file)
        else:
            print(f"{file}: not checked, because it has no compile command", file=sys.stderr)
    return tasks.values()


def including(by_file, header):
    """A source that includes the header."""
    line = f'#include "{header.relative_to(pathlib.Path.cwd())}"'
    return next((f for f in sorted(by_file) if f.exists() and line in f.read_text()), None)


def nearest(by_file, header):
    """A source of the header's directory, or of the closest one above it."""
    for directory in header.parents:
        below = sorted(f for f in by_file if f.suffix == ".cc" and directory in f.parents)
        if below:
            return below[0]
    return None


def compile_alone(task):
    entry, file = task
    argv = [a for a in shlex.split(entry["command"]) if a != "-c" and a != entry["file"]]
    output = argv.index("-o")
    argv = argv[:output] + argv[output + 2:] + ["-O0", "-U_FORTIFY_SOURCE", "-fsyntax-only"]
    if file.suffix == ".h":
        argv += ["-x", "c++", "-include", str(file), "/dev/null"]
    else:
        argv.append(str(file))
    return subprocess.run(argv, cwd=entry["directory"], capture_output=True, text=True)


def main():
    commands = json.loads(pathlib.Path(sys.argv[1]).read_text())
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(compile_alone, tasks_of(commands, sys.argv[2:])))
    messages = [result.stderr for result in results if result.returncode != 0]
    print("".join(messages), end="")
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main())
