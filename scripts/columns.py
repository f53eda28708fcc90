#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the lines of C++ files that have more than 100 columns; exits 1 if there are any. clang-format
breaks neither comments nor raw strings. Two kinds of lines may be longer:
  - a line of a raw string that has several lines, because a program prints or reads the text unchanged
  - a comment of a single word, such as a URL

  columns.py FILE...
"""

import re
import sys

COLUMNS = 100
RAW_STRING = re.compile(r'R"([^\s()\\]{0,16})\(')
ONE_WORD = re.compile(r"\s*// \S+$")


def long_lines(text):
    end = None  # of the raw string that the line begins in
    for number, line in enumerate(text.splitlines(), 1):
        may_be_long, at = end is not None, 0
        while at < len(line):
            if end is None:
                opened = RAW_STRING.search(line, at)
                if opened is None:
                    break
                end, at = f'){opened[1]}"', opened.end()
            closed = line.find(end, at)
            if closed < 0:
                break
            end, at = None, closed + 1
        may_be_long = may_be_long or end is not None or ONE_WORD.match(line)
        if len(line) > COLUMNS and not may_be_long:
            yield number


def main():
    if len(sys.argv) == 1:
        sys.exit("usage: columns.py FILE...")
    found = [f"{name}:{number}" for name in sys.argv[1:] for number in long_lines(open(name, encoding="utf-8").read())]
    print("".join(line + "\n" for line in found), end="")
    sys.exit(1 if found else 0)


main()
