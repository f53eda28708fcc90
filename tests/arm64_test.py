#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The programs and libraries of an arm64 build, under qemu-user: each program starts, and what is loaded into
containers needs no C library newer than 2.17.

usage: arm64_test.py BUILD_DIRECTORY SYSROOT VERSION
"""
import pathlib
import re
import shutil
import subprocess
import sys

BUILD, SYSROOT, VERSION = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
PROGRAMS = ("tessera", "sched-replay", "tessera-agent", "tessera-scheduler", "tessera-operator", "tessera-console",
            "tessera-runtime", "vectoradd")


def check(condition, what):
    if not condition:
        sys.exit(what)


def run(*command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    check(done.returncode == 0, f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def main():
    qemu = shutil.which("qemu-aarch64-static")
    if qemu is None:
        print("skipped: qemu-aarch64-static is not installed: apt-get install qemu-user-static")
        sys.exit(77)
    for name in PROGRAMS:
        program = BUILD / "bin" / name
        check(program.exists(), f"{program} is missing: build the targets of a release with preset release-arm64")
        check("AArch64" in run("readelf", "-h", program), f"{program} is not for arm64")
        version = run(qemu, "-L", SYSROOT, program, "--version")
        check(VERSION in version, f"{name} --version says {version!r}, not {VERSION}")
        check("usage" in run(qemu, "-L", SYSROOT, program, "--help").lower(), f"{name} --help shows no usage")
        check("runpath" not in run("readelf", "-d", program).lower(), f"{name} has a library path of this machine")
    check("INTERP" not in run("readelf", "-lW", BUILD / "bin/tessera-runtime"), "tessera-runtime is not static")
    for file in [*(BUILD / "lib").glob("libtessera-*-*.so"), BUILD / "bin/vectoradd"]:
        newer = [f"2.{minor}" for minor in re.findall(r"GLIBC_2\.(\d+)", run("readelf", "-VW", file)) if int(minor) > 17]
        check(not newer, f"{file} needs glibc {', '.join(newer)}: containers may have 2.17")
    print("all programs run under qemu-user")


main()
