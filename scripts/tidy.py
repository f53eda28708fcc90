#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy on the changed lines of C++ sources and headers, and prints what it finds there.

  git diff -U0 BASE -- '*.cc' '*.h' | tidy.py BUILD_FOLDER   exits 1 if there are findings

BUILD_FOLDER has compile_commands.json. clang-tidy compiles a header with the flags of the source that has
the most similar name.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys

# clang does not know some warnings of GCC. A header is compiled as if it were a source.
FLAGS = ("-Wno-unknown-warning-option", "-Wno-pragma-once-outside-header")


def changed_lines(diff):
    """The ranges of added lines, by file."""
    ranges, file = {}, None
    for line in diff:
        if line.startswith("+++ "):
            file = line.rstrip().removeprefix("+++ ").removeprefix("b/")
        elif match := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            first, count = int(match[1]), int(match[2] or 1)
            if count > 0:
                ranges.setdefault(file, []).append([first, first + count - 1])
    return ranges


def tidy(build, file, lines):
    """The findings in the lines of a file. They include a failure of clang-tidy itself, such as a crash."""
    done = subprocess.run(["clang-tidy", "-p", build, "--quiet", "--line-filter=" + json.dumps([{"name": file, "lines": lines}]),
                           *(f"--extra-arg={flag}" for flag in FLAGS), file], capture_output=True, text=True)
    root = str(pathlib.Path.cwd())
    lines_of_output = done.stdout.splitlines()
    # GCC is what compiles the project. Version 14 of clang rejects some of its C++20.
    unknown = [line for line in lines_of_output if line.endswith("[clang-diagnostic-error]")]
    found = sorted({line for line in lines_of_output
                    if line.startswith(root) and re.search(": (error|warning): ", line) and line not in unknown})
    if done.returncode != 0 and not found and not unknown:
        how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
        end = "".join("\n    " + line for line in (done.stdout + done.stderr).splitlines()[-12:])
        found = [f"{file}: clang-tidy itself failed ({how}): see it with: clang-tidy -p {build} {file}{end}"]
    return found


def main():
    ranges = changed_lines(sys.stdin)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(lambda each: tidy(sys.argv[1], *each), ranges.items()))
    print("".join(line + "\n" for lines in found for line in lines), end="")
    sys.exit(1 if any(found) else 0)


main()
