#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks every *.md of the tree: no line of prose is longer than 100 columns, every link leads to a
file and a heading that exist, and every test that is named exists. Checks in all files that a page
of docs/ that they name exists.

  markdown_test.py ROOT         checks the tree; prints each failure as file:line with what to do
  markdown_test.py --self-test  checks the check with planted offences
  markdown_test.py --wrap FILE  wraps each paragraph of FILE that has a line of over 100 columns

Tables, code blocks and HTML comments may be wider. So may a line that has no space to break at.
"""

import difflib
import os
import pathlib
import re
import sys
import tempfile

THIS_FILE = pathlib.Path(__file__).resolve()  # names pages and tests that do not exist
COLUMNS = 100
# A long code span may be broken at a space, which Markdown shows as a space. A short one is not.
LONGEST_UNBROKEN_SPAN = 80
SKIPPED_FOLDERS = {"build", "node_modules", "shared"}
FENCE = re.compile(r"^\s*(```+|~~~+)")
HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*\s*$")
LIST_ITEM = re.compile(r"^(\s*)((?:[-*+]|\d+[.)])\s+)")
QUOTE = re.compile(r"^\s*>")
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
DEFINITION = re.compile(r"^\s{0,3}\[[^\]]+\]:\s+<?(\S+?)>?\s*$")
ANCHOR = re.compile(r"<a\s+(?:id|name)=\"([^\"]+)\"")
PAGE = re.compile(r"(?<![\w/.:-])docs/[\w./-]+\.(?:md|svg)\b")
TEST_NAME = re.compile(r"`(Test[A-Z]\w+|[A-Z]\w*Test\.\w+)(…?)`")
GO_TEST = re.compile(r"^func (Test\w+)\(", re.M)
CC_TEST = re.compile(r"^(?:TYPED_)?TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", re.M)
SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*:", re.I)
# A word that would begin a list, a heading, a quote or a table at the start of a line.
BLOCK_MARKER = re.compile(r"^(?:[-*+]|\d+[.)]|#{1,6}|[>|].*|=+|-+)$")


def kinds(lines):
    """What each line is: "code", "comment", "table", "heading", "blank" or "prose"."""
    found, fence, comment, in_list = [], None, False, False
    for line in lines:
        opening = FENCE.match(line)
        if fence:
            found.append("code")
            if opening and opening.group(1).startswith(fence):
                fence = None
        elif opening:
            fence = opening.group(1)
            found.append("code")
        elif comment or line.lstrip().startswith("<!--"):
            found.append("comment")
            comment = "-->" not in line
        elif not line.strip():
            found.append("blank")
        elif line.lstrip().startswith("|"):
            found.append("table")
        elif HEADING.match(line):
            found.append("heading")
            in_list = False
        elif re.match(r"^(?: {4}|\t)", line) and not in_list and (
                not found or found[-1] in ("blank", "code", "heading")):
            found.append("code")
        else:
            in_list = bool(LIST_ITEM.match(line)) or (in_list and line.startswith(" "))
            found.append("prose")
    return found


def can_be_broken(line):
    marker = LIST_ITEM.match(line)
    return len(words(line[marker.end():] if marker else line)) > 1


def words(text):
    """Splits at spaces, but not inside short code spans nor before what would begin a block."""
    spans = re.findall(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", text)
    for ticks, body in spans:
        span = ticks + body + ticks
        if len(span) <= LONGEST_UNBROKEN_SPAN:
            text = text.replace(span, span.replace(" ", "\0"))
    found = []
    for word in text.split():
        if found and BLOCK_MARKER.match(word):
            found[-1] += " " + word
        else:
            found.append(word)
    return [word.replace("\0", " ") for word in found]


def wrapped(lines, first_indent, next_indent):
    out, line = [], first_indent
    empty = True
    for word in words(" ".join(lines)):
        if not empty and len(line) + 1 + len(word) > COLUMNS:
            out.append(line)
            line, empty = next_indent, True
        line += word if empty else " " + word
        empty = False
    return out + [line]


def wrap(text):
    lines = text.split("\n")
    kind = kinds(lines)
    out, i = [], 0
    while i < len(lines):
        if kind[i] != "prose" or QUOTE.match(lines[i]):
            out.append(lines[i])
            i += 1
            continue
        end = i + 1
        while (end < len(lines) and kind[end] == "prose" and not LIST_ITEM.match(lines[end])
               and not QUOTE.match(lines[end]) and not lines[end - 1].endswith(("  ", "\\"))):
            end += 1
        paragraph = lines[i:end]
        if max(map(len, paragraph)) > COLUMNS:
            marker = LIST_ITEM.match(paragraph[0])
            indent = re.match(r"\s*", paragraph[0]).group()
            first = marker.group() if marker else indent
            rest = [paragraph[0][len(first):], *(line.strip() for line in paragraph[1:])]
            paragraph = wrapped(rest, first, " " * len(first) if marker else indent)
        out += paragraph
        i = end
    return "\n".join(out)


def slugs(text):
    lines = text.split("\n")
    found = set(ANCHOR.findall(text))
    for line, kind in zip(lines, kinds(lines)):
        if kind != "heading":
            continue
        title = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", HEADING.match(line).group(2)).lower()
        slug = base = re.sub(r"[^\w\- ]", "", title).replace(" ", "-")
        count = 0
        while slug in found:
            count += 1
            slug = f"{base}-{count}"
        found.add(slug)
    return found


def link_offence(root, page, target):
    """Why `target`, as `page` links to it, leads nowhere; None if it leads somewhere."""
    if SCHEME.match(target):
        return None
    path, _, anchor = target.partition("#")
    if path.startswith("/"):
        return f"absolute link {target}: write it relative to this page"
    file = pathlib.Path(os.path.normpath(page.parent / path)) if path else page
    if root not in [file, *file.parents] or not file.exists():
        return f"link to {target}: no such file: correct the path, or remove the link"
    if anchor and file.suffix == ".md":
        known = slugs(file.read_text())
        if anchor not in known:
            near = difflib.get_close_matches(anchor, known, 1, 0)
            hint = f": did you mean #{near[0]}?" if near else ""
            return f"link to {target}: no such heading: correct the anchor{hint}"
    return None


def page_offences(root, page):
    name = page.relative_to(root).as_posix()
    lines = page.read_text().split("\n")
    for number, (line, kind) in enumerate(zip(lines, kinds(lines)), 1):
        if len(line) > COLUMNS and (kind == "heading" or kind == "prose" and can_be_broken(line)):
            fix = "shorten it" if kind == "heading" else f"run tests/markdown_test.py --wrap {name}"
            yield f"{name}:{number}: {len(line)} columns, at most {COLUMNS}: {fix}"
    # A link may stand on two lines, so links are sought in paragraphs.
    prose = [line if kind not in ("code", "comment") else ""
             for line, kind in zip(lines, kinds(lines))]
    text = re.sub(r"`[^`\n]*`", lambda span: "`" * len(span.group()), "\n".join(prose))
    for pattern in (LINK, re.compile(DEFINITION.pattern, re.M)):
        for found in pattern.finditer(text):
            why = link_offence(root, page, found.group(1))
            if why:
                yield f"{name}:{text.count(chr(10), 0, found.start(1)) + 1}: {why}"


def test_names(files):
    """The tests of the tree: TestName of Go, Suite.Name of C++."""
    found = set()
    for file in files:
        if file.name.endswith("_test.go"):
            found.update(GO_TEST.findall(file.read_text()))
        elif file.suffix == ".cc" and "test" in file.stem:
            found.update(".".join(pair) for pair in CC_TEST.findall(file.read_text()))
    return found


def test_offences(root, page, tests):
    """Tests that a page names, "…" after the beginning of a name included, and the tree lacks."""
    text = page.read_text()
    for found in TEST_NAME.finditer(text):
        name, short = found.groups()
        if name in tests or short and any(test.startswith(name) for test in tests):
            continue
        near = difflib.get_close_matches(name, tests, 1, 0.6)
        hint = f": is it {near[0]} now?" if near else ""
        line = text.count("\n", 0, found.start()) + 1
        yield (f"{page.relative_to(root).as_posix()}:{line}: no test {name}: "
               f"name the test that proves it{hint}")


def mention_offences(root, file):
    """Pages of docs/ that a comment, a message or a page names as `docs/...`."""
    try:
        text = file.read_text()
    except UnicodeDecodeError:
        return
    for found in PAGE.finditer(text):
        if not (root / found.group()).exists():
            line = text.count("\n", 0, found.start()) + 1
            yield (f"{file.relative_to(root).as_posix()}:{line}: no page {found.group()}: "
                   "name the page that has it now")


def files_of(root):
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(f for f in folders
                            if not f.startswith(".") and f not in SKIPPED_FOLDERS)
        for file in sorted(pathlib.Path(folder, name) for name in names):
            if file.is_file() and not file.is_symlink() and file != THIS_FILE:
                yield file


def offences(root):
    files = list(files_of(root))
    tests = test_names(files)
    found = []
    for file in files:
        if file.suffix == ".md":
            found += page_offences(root, file)
            found += test_offences(root, file, tests)
        found += mention_offences(root, file)
    return found


LONG = "word " * 30
PLANTS = [
    ("a long line", {"a.md": LONG}, "a.md:1: 150 columns"),
    ("a long item", {"a.md": "- x\n- " + LONG}, "a.md:2: 152 columns"),
    ("a long heading", {"a.md": "# " + LONG}, "shorten it"),
    ("a long line after code", {"a.md": "```\nx\n```\n" + LONG}, "a.md:4: 150 columns"),
    ("a long line after an indented block", {"a.md": "x\n\n    code\n\n" + LONG}, "a.md:5: 150"),
    ("a long paragraph of an item", {"a.md": "1. x\n\n    " + LONG}, "a.md:3: 154"),
    ("a missing file", {"a.md": "x\n[b](b.md)"}, "a.md:2: link to b.md: no such file"),
    ("a link on two lines", {"a.md": "[b\nc](b.md)"}, "a.md:2: link to b.md: no such file"),
    ("a missing image", {"a.md": "![b](b.svg)"}, "link to b.svg: no such file"),
    ("a missing file in a table", {"a.md": "| [b](b.md) |"}, "link to b.md: no such file"),
    ("a missing definition", {"a.md": "[b]: b.md"}, "link to b.md: no such file"),
    ("a file outside the tree", {"a.md": "[b](../../etc)"}, "no such file"),
    ("an absolute link", {"a.md": "[b](/etc)"}, "absolute link"),
    ("a missing anchor", {"a.md": "# One thing\n[b](#one-thin)"}, "did you mean #one-thing?"),
    ("a missing anchor elsewhere", {"a.md": "[b](d/b.md#c)", "d/b.md": "# C d"}, "no such heading"),
    ("a heading in code", {"a.md": "```\n# One\n```\n[b](#one)"}, "no such heading"),
    ("a missing test", {"a.md": "`TestThatIs`", "x_test.go": "func TestThatWas(t *testing.T) {"},
     "a.md:1: no test TestThatIs: name the test that proves it: is it TestThatWas now?"),
    ("a missing C++ test", {"a.md": "`ATest.Has`", "a_test.cc": "TEST_F(ATest, Had) {"},
     "ATest.Had now?"),
    ("a part of a name", {"a.md": "`TestThat`", "x_test.go": "func TestThatIs(t *testing.T) {"},
     "no test TestThat:"),
    ("the beginning of a missing test", {"a.md": "`TestThat…`"}, "no test TestThat"),
    ("a page that a comment names", {"x/a.h": "// docs/b.md"}, "x/a.h:1: no page docs/b.md"),
]
LAWFUL = {
    "a.md": "# A `b`, c!\n\n# Twice\n\n# Twice\n\n| " + LONG + "|\n\n"
            + "```\n" + LONG + "\n[n](none.md)\n```\n\n    " + LONG + "\n\n"
            + "<!-- " + LONG + "\n[n](none.md) -->\n\n"
            + "[x](d/b.md#e-f) [y](#a-b-c) [z](#twice-1) [d](d)\n"
            + "[w](https://example.org/docs/none.md) `[n](none.md)`\n\n" + "x" * 200 + "\n",
    "d/b.md": "## E *f*\n\n[a](../a.md)\n",
    "e.md": "`TestThat…` `TestThatIs` `ATest.Has`",
    "e_test.go": "func TestThatIs(t *testing.T) {\n",
    "e_test.cc": "TEST(ATest, Has) {\n",
    "d/b.h": "// https://example.org/docs/none.md\n",
}
WRAPPED = [
    (LONG, "prose"),
    ("- " + LONG + "\n- short\n", "an item"),
    ("  2. " + LONG, "an indented item"),
    (("x " + "y" * 96 + " 1. ") * 3, "a number that would begin a list"),
    (("x " + "y" * 97 + " - ") * 3, "a dash that would begin a list"),
    ("| " + LONG + "|", "a table"),
]


def planted(files):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder).resolve()
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        return offences(root)


def self_test():
    for what, files, wanted in PLANTS:
        found = planted(files)
        if not any(wanted in line for line in found):
            sys.exit(f"{what} was not found: {found}")
    if found := planted(LAWFUL):
        sys.exit(f"lawful pages were rejected: {found}")
    if "`a b c`" not in wrap("x" * 96 + " `a b c` " + LONG):
        sys.exit("wrapping broke a short code span")
    for text, what in WRAPPED:
        new = wrap(text)
        if new.split() != text.split():
            sys.exit(f"wrapping {what} changed its words: {new!r}")
        if any("columns" in line for line in planted({"a.md": new})):
            sys.exit(f"wrapping {what} left a long line: {new!r}")
        if [bool(LIST_ITEM.match(line)) for line in new.split("\n")].count(True) != \
                [bool(LIST_ITEM.match(line)) for line in text.split("\n")].count(True):
            sys.exit(f"wrapping {what} made or lost an item: {new!r}")


def main(arguments):
    if arguments == ["--self-test"]:
        self_test()
    elif arguments[:1] == ["--wrap"] and len(arguments) > 1:
        for name in arguments[1:]:
            path = pathlib.Path(name)
            path.write_text(wrap(path.read_text()))
    elif len(arguments) == 1 and not arguments[0].startswith("-"):
        bad = offences(pathlib.Path(arguments[0]).resolve())
        print("\n".join(bad) or "every line fits and every link leads somewhere")
        sys.exit(1 if bad else 0)
    else:
        print(__doc__, file=sys.stdout if arguments in (["-h"], ["--help"]) else sys.stderr)
        sys.exit(0 if arguments in (["-h"], ["--help"]) else 2)


if __name__ == "__main__":
    main(sys.argv[1:])
