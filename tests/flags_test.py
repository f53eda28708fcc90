#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""flags_test.py PROGRAM [FLAG=VALUE...]: checks that PROGRAM ends with 64 (EX_USAGE) if it gets an
unknown flag or one of the given flags, and with 75 (EX_TEMPFAIL) if it cannot write its help, and
that --version prints one line and needs no other flag."""

import re
import subprocess
import sys


def fail_unless(command, out, wanted):
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE,
                           text=True, timeout=60)
    if ended.returncode != wanted or not ended.stderr:
        sys.exit(f"{' '.join(command)}: {ended.returncode}, not {wanted}; printed: {ended.stderr!r}")


program = sys.argv[1:2]
for wrong in ["--no-such-flag"] + sys.argv[2:]:
    fail_unless(program + [wrong], subprocess.DEVNULL, 64)
with open("/dev/full", "w") as full:
    fail_unless(program + ["--help"], full, 75)
version = subprocess.run(program + ["--version"], capture_output=True, text=True, timeout=60)
if version.returncode != 0 or not re.fullmatch(r"\d+\.\d+\.\d+\S*\n", version.stdout):
    sys.exit(f"{program[0]} --version: {version.returncode}; printed: {version.stdout!r} {version.stderr!r}")
