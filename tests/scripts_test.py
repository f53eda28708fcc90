#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the scripts do in a fresh clone: scripts_test.py SOURCE_DIRECTORY"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(sys.argv.pop(1))
WITH_USAGE = ("check", "driver-images", "images", "lint", "node", "quickstart", "reference", "simulated-drivers",
              "sysroot")


def run(*argv, **more):
    return subprocess.run(argv, capture_output=True, text=True, **more)


class Scripts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        shutil.copytree(SOURCE / "scripts", self.root / "scripts")
        self.root.chmod(0o755)

    def script(self, name):
        return str(self.root / "scripts" / name)

    def test_help_is_no_failure(self):
        for name in WITH_USAGE:
            answer = run(self.script(name), "--help")
            self.assertEqual((answer.returncode, answer.stderr), (0, ""), name)
            self.assertIn(name, answer.stdout)

    def test_a_wrong_argument_is_answered_with_the_usage(self):
        for name in WITH_USAGE:
            answer = run(self.script(name), "--wrong", "argument")
            self.assertEqual(answer.returncode, 2, name)

    @unittest.skipUnless(shutil.which("clang-format"), "clang-format is not installed")
    def test_lint_names_the_file_and_the_remedy(self):
        long = "word " * 20
        (self.root / "bad.cc").write_text(
            f'int  x ;\n// {long}\n// https://{"a" * 100}\n'
            f'const char* kTable = R"({long}\n{long}\n{long})" R"-({long})-";\nint y;  // {long}\n'
            f'const char* kOneLine = R"({long})";\n')
        (self.root / "module").mkdir()
        (self.root / "module/go.mod").write_text("module example.org/module\n\ngo 1.26\n")
        (self.root / "module/bad.go").write_text('package bad\n\nimport "fmt"\n\nfunc f()  { fmt.Printf("%d", "x") }\n')
        (self.root / "bad.sh").write_text("#!/bin/bash\ncd $1\nrm -rf *\n")
        run("git", "init", "--quiet", cwd=self.root)
        run("git", "add", ".", cwd=self.root)
        answer = run(self.script("lint"))
        self.assertEqual(answer.returncode, 1)
        self.assertIn("bad.cc\nC++ format: run scripts/lint --fix\n", answer.stdout)
        self.assertIn("\nbad.cc:2\nbad.cc:7\nbad.cc:8\nC++ columns: break these lines", answer.stdout)
        if shutil.which("go"):
            self.assertIn("bad.go\nGo format: run scripts/lint --fix\n", answer.stdout)
            self.assertIn("check it again with: (cd module && go vet ./...)\ngo vet: ", answer.stdout)
        if shutil.which("shellcheck"):
            self.assertIn("shellcheck: fix what it names", answer.stdout)

    @unittest.skipUnless(shutil.which("clang-tidy"), "clang-tidy is not installed")
    def test_tidy_checks_changed_lines_of_sources_and_headers(self):
        late_else = "inline int {}(int a) {{\n  if (a) {{\n    return 1;\n  }} else {{\n    return 2;\n  }}\n}}\n"
        (self.root / ".clang-tidy").write_text("Checks: -*,readability-else-after-return\nWarningsAsErrors: '*'\n")
        (self.root / "name.h").write_text("#pragma once\n" + late_else.format("Old") + late_else.format("New"))
        (self.root / "name.cc").write_text('#include "name.h"\n' + late_else.format("Other"))
        (self.root / "compile_commands.json").write_text(json.dumps([
            {"directory": str(self.root), "command": f"c++ -c {self.root}/name.cc", "file": f"{self.root}/name.cc"}]))
        diff = "+++ b/name.h\n@@ -8,0 +9,7 @@\n+++ b/name.cc\n@@ -0,0 +1 @@\n+++ b/gone.h\n@@ -1,2 +0,0 @@\n"

        def tidy(**more):
            return run(self.script("tidy.py"), ".", input=diff, cwd=self.root, **more)

        answer = tidy()
        self.assertEqual(answer.returncode, 1)
        self.assertEqual([line.split(": ")[0] for line in answer.stdout.splitlines()], [f"{self.root}/name.h:12:5"])
        # Few sources make clang-tidy crash, so a program that crashes takes its place.
        (self.root / "bin").mkdir()
        (self.root / "bin/clang-tidy").write_text("#!/bin/sh\necho stack >&2\nkill -SEGV $$\n")
        (self.root / "bin/clang-tidy").chmod(0o755)
        answer = tidy(env={"PATH": f"{self.root}/bin:{os.environ['PATH']}"})
        self.assertEqual(answer.returncode, 1)
        self.assertIn("name.h: clang-tidy itself failed (signal 11)", answer.stdout)
        self.assertIn("    stack\n", answer.stdout)

    @unittest.skipUnless(shutil.which("c++"), "c++ is not installed")
    def test_compile_alone_finds_a_missing_include(self):
        (self.root / "name.h").write_text("#pragma once\nint Name();\n")
        (self.root / "good.cc").write_text('#include "name.h"\nint Good() { return Name(); }\n')
        (self.root / "bad.cc").write_text("int Bad() { return Name(); }\n")
        (self.root / "bad.h").write_text("#pragma once\nstruct Bad { std::string name; };\n")
        (self.root / "commands.json").write_text(json.dumps([
            {"directory": str(self.root), "command": f"c++ -o {name}.o -c {self.root}/{name}.cc",
             "file": f"{self.root}/{name}.cc"} for name in ("good", "bad")]))
        for names, message in ((("good.cc", "name.h"), ""), (("bad.cc",), "bad.cc:1"),
                               (("good.cc", "bad.h"), "bad.cc:1")):
            answer = run(self.script("compile_alone.py"), "commands.json", *names, cwd=self.root)
            self.assertEqual(answer.returncode, 1 if message else 0, names)
            self.assertIn(message, answer.stdout)
        (self.root / "bad.cc").unlink()
        (self.root / "commands.json").write_text(json.dumps([
            {"directory": str(self.root), "command": f"c++ -o good.o -c {self.root}/good.cc",
             "file": f"{self.root}/good.cc"}]))
        answer = run(self.script("compile_alone.py"), "commands.json", "bad.h", cwd=self.root)
        self.assertEqual(answer.returncode, 1)
        self.assertIn("bad.h:2", answer.stdout)

    def test_a_release_finds_its_commit_and_time_with_and_without_git(self):
        def source_of_release(**environment):
            answer = run("bash", "-c", f'source "{self.script("common.sh")}"; current_commit; source_date',
                         env={"PATH": os.environ["PATH"]} | environment)
            self.assertEqual((answer.returncode, answer.stderr), (0, ""))
            return answer.stdout.split()

        def git(*words):
            answer = run("git", "-c", "user.name=test", "-c", "user.email=test@example.org", *words, cwd=self.root)
            self.assertEqual(answer.returncode, 0, answer.stderr)
            return answer.stdout.strip()

        (self.root / "CHANGELOG.md").write_text("# Changelog\n")
        os.utime(self.root / "CHANGELOG.md", (1700000000, 1700000000))
        self.assertEqual(source_of_release(), ["unknown", "1700000000"])
        self.assertEqual(source_of_release(SOURCE_DATE_EPOCH="1600000000"), ["unknown", "1600000000"])
        git("init", "--quiet")
        git("add", ".")
        git("commit", "--quiet", "--message", "All", "--date", "@1650000000 +0000")
        commit, time = git("rev-parse", "--short=12", "HEAD"), git("log", "-1", "--format=%ct")
        self.assertEqual(source_of_release(), [commit, time])
        self.assertEqual(source_of_release(SOURCE_DATE_EPOCH="1600000000"), [commit, "1600000000"])
        # The archive is unpacked inside another repository.
        inner = self.root / "inner"
        shutil.copytree(self.root / "scripts", inner / "scripts")
        shutil.copy2(self.root / "CHANGELOG.md", inner)
        self.root = inner
        self.assertEqual(source_of_release(), ["unknown", "1700000000"])

    def test_without_a_cluster_the_scripts_name_the_command_that_starts_one(self):
        for command in (("kubectl", "get", "nodes"), ("node", "true")):
            answer = run(self.script(command[0]), *command[1:])
            self.assertEqual(answer.returncode, 1)
            self.assertIn("run scripts/quickstart", answer.stderr)

    @unittest.skipUnless(os.getuid() == 0, "becoming another user needs root")
    def test_the_scripts_first_tell_another_user_that_they_need_root(self):
        for name in ("check", "quickstart"):
            answer = run(self.script(name), user=65534, group=65534, extra_groups=[],
                         env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"})
            self.assertEqual(answer.returncode, 1)
            self.assertEqual(answer.stderr, "")
            self.assertIn("must run as root", answer.stdout)


if __name__ == "__main__":
    unittest.main()
