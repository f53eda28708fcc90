#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adds up what CTest and GoogleTest (JUnit XML) and `go test -json` reported.

  count_results.py FOLDER [LOG...] the reasons of what was skipped, what failed with the lines of its
                                   output that tell why, and the closing line; each LOG is of a step
                                   that failed
  count_results.py --failures FILE the output of the tests that failed in one go test file
"""

import json
import pathlib
import re
import sys
import xml.etree.ElementTree as xml

# The summary shows this number of lines of a failed test's output.
LINES_OF_A_FAILURE = 16
# A line that tells why a test failed: of Go, GoogleTest, Node.js and Python. The lines after it explain it.
REASON = re.compile(r"_?\w+\.go:\d+: |\.cc:\d+: Failure|^\s*not ok |\u2716|\berror: |\w*Error\b|^panic: |^Timeout\b")
LINES_AFTER_A_REASON = 4


def from_junit(path):
    for case in xml.parse(path).getroot().iter("testcase"):
        name = f"{path.stem.removeprefix('ctest-')}: {case.get('name')}"
        text = case.findtext("system-out") or ""
        if case.get("status") in ("fail", "notrun_failed") or case.find("failure") is not None:
            yield name, "failed", text
        elif case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
            yield name, "skipped", gtest_reason(text)
        elif "[  SKIPPED ]" in text:
            yield name, "skipped", gtest_reason(text)
        else:
            yield name, "passed", ""


def from_gtest(path):
    for case in xml.parse(path).getroot().iter("testcase"):
        name = f"{path.parent.name}: {case.get('classname')}.{case.get('name')}"
        failures = [failure.get("message", "") for failure in case.iter("failure")]
        skipped = case.find("skipped")
        if failures:
            yield name, "failed", "\n".join(failures)
        elif skipped is not None:
            # The message has the place, and then the reason.
            yield name, "skipped", (skipped.get("message") or "no reason was printed").splitlines()[-1]
        elif case.get("result") == "completed":
            yield name, "passed", ""


def gtest_reason(text):
    """GoogleTest prints `file:line: Skipped` and then the reason."""
    lines = [line.strip() for line in text.splitlines()]
    for at, line in enumerate(lines):
        if line.endswith("Skipped") and at + 1 < len(lines):
            return lines[at + 1]
    return next((line for line in lines if "skip" in line.lower()), "no reason was printed")


def from_go(path):
    outputs, parents = {}, set()
    for line in path.read_text().splitlines():
        if not line.startswith("{"):
            continue
        event = json.loads(line)
        name = event.get("Test")
        if name is None:
            # A package that does not build, or that crashes, fails without a failed test.
            if event.get("Action") == "fail" and not event.get("Package", "") in parents:
                yield f"go: {event.get('Package')}", "failed", outputs.get(event.get("Package"), "")
            elif event.get("Action") in ("output", "build-output"):
                key = event.get("Package") or event.get("ImportPath")
                outputs[key] = outputs.get(key, "") + event.get("Output", "")
            continue
        key = f"{event['Package']}.{name}"
        if event["Action"] == "output":
            outputs[key] = outputs.get(key, "") + event["Output"]
        elif event["Action"] in ("pass", "fail", "skip"):
            if event["Action"] == "fail":
                parents.add(event["Package"])
            kind = {"pass": "passed", "fail": "failed", "skip": "skipped"}[event["Action"]]
            text = outputs.get(key, "")
            if kind == "skipped":
                text = next((line.strip() for line in text.splitlines()
                             if line.strip() and not line.startswith(("=== ", "--- "))), "")
            yield f"go: {name}", kind, text


def reason_lines(text):
    """The reasons, each with the lines after it; the last lines of an output without a reason."""
    lines = text.splitlines()
    kept, until = [], -1
    for at, line in enumerate(lines):
        if REASON.search(line):
            until = at + LINES_AFTER_A_REASON
        if at <= until:
            kept.append(line)
    return kept[:LINES_OF_A_FAILURE] if kept else lines[-LINES_OF_A_FAILURE:]


def main():
    if sys.argv[1] == "--failures":
        for name, kind, text in from_go(pathlib.Path(sys.argv[2])):
            if kind == "failed":
                print(f"FAILED {name}\n{text}")
        return 0
    directory = pathlib.Path(sys.argv[1])
    # The steps come first, so that the end of the summary names the failed tests.
    results = [(f"step {log.stem}", "failed", log.read_text(errors="replace"))
               for log in map(pathlib.Path, sys.argv[2:])]
    for path in sorted(directory.iterdir()):
        if path.is_dir():
            results += [result for file in sorted(path.iterdir()) for result in from_gtest(file)]
        else:
            results += list(from_junit(path) if path.suffix == ".xml" else from_go(path))
    for name, kind, text in results:
        if kind == "skipped":
            print(f"skipped  {name}: {text}")
    for name, kind, text in results:
        if kind == "failed":
            print(f"FAILED   {name}")
            for line in reason_lines(text):
                print(f"    {line[:300]}")
    count = {kind: sum(k == kind for _, k, _ in results) for kind in ("passed", "failed", "skipped")}
    print(f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped")
    return 0 if count["failed"] == 0 and count["passed"] > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
