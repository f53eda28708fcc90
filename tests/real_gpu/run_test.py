# SPDX-License-Identifier: Apache-2.0
"""Runs the experiments on the simulated driver, and checks errors of scripts/real-gpu."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "real-gpu"
SKIP = 77


def run(*arguments):
    return subprocess.run([SCRIPT, "--no-build", *arguments], text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def check(good, what):
    if not good:
        sys.exit(f"failed: {what}")


def check_skips():
    with tempfile.TemporaryDirectory() as empty:
        done = run("--driver", empty)
    check(done.returncode == SKIP, f"exit code {done.returncode} without a driver: {done.stderr}")
    check(re.search(r"SKIPPED: .*libcuda\.so\.1", done.stdout), f"no reason: {done.stdout}")


def check_arguments():
    for option, value in (("--seconds", "2"), ("--seconds", "x"), ("--shares", "0.3,x"),
                          ("--shares", "30")):
        done = run("--simulation-only", option, value)
        check(done.returncode == 2 and f"argument {option}: " in done.stderr,
              f"{option} {value}: exit code {done.returncode}: {done.stderr}")


def check_rows(rows, root):
    answers = {question: answer for _, question, answer in rows}
    experiments = {experiment for experiment, _, _ in rows}
    wanted = {f"E{i}" for i in range(1, 12)}
    check(wanted - experiments == (set() if root else {"E7", "E8", "E9"}),
          f"experiments {sorted(experiments)}")
    missing = answers["functions of the driver's CUDA version that the driver does not export"]
    check(missing == "0", answers)
    check(answers["exported functions that api/cuda_symbols.inc lacks"] == "0", answers)
    taken = answers["cuMemCreate: 1 B, 1, 3, 257 MiB take"]
    check(taken == "2 MiB, 2 MiB, 4 MiB, 258 MiB", answers)
    check(answers["a pool of at most 64 MiB gives"] == "64 MiB", answers)
    check(answers["pid in the list of processes"] == "that of getpid()", answers)
    between = answers["between the events around an empty kernel, beside a busy program"]
    check(float(between.split()[0]) < 100, f"an event has waited for a turn: {between}")
    if not root:
        return
    check(answers["look-ups under the limiter"] == "alike", answers)
    for kind in ("cuMemAlloc", "cuMemAllocAsync", "cuMemCreate"):
        taken = answers[f"{kind}, in a share of 10240 MiB"]
        check(taken.startswith(("10112 ", "10176 ", "10240 ")) and taken.endswith("error 2"), taken)
    for question in ("async launches with 30% of the GPU", "sync launches with 30% of the GPU",
                     "graph launches with 30% of the GPU"):
        check(20 < float(answers[question].split()[0]) < 36, f"{question}: {answers[question]}")


def main():
    check_skips()
    check_arguments()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "rows.json")
        done = run("--simulation-only", "--seconds", "3", "--shares", "0.3", "--json", path)
        check(done.returncode == 0, done.stdout + done.stderr)
        rows = json.loads(path.read_text(encoding="utf-8"))["simulation"]
    check(done.stdout.startswith("| | asked | measured | simulation |"), done.stdout)
    check_rows(rows, os.geteuid() == 0)


if __name__ == "__main__":
    main()
