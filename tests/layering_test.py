#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The judge of the layering: walks every #include below src/, and fails on an edge that goes up,
on a product that includes another product, and on a library that a room uses without naming it in
its README.

  layering_test.py ROOT   checks the tree; `--self-test` checks the judge with planted offences.
"""

import pathlib
import re
import sys
import tempfile

# A room may include itself, rooms of lower levels, and what stands in SAME_LEVEL.
LEVELS = {
    "base": 0,
    "formats": 1, "device": 1, "limiter": 1,
    "placement": 2, "net": 2, "gpu": 2, "oci": 2,
    "kube": 3, "grant": 3,
    "ledger": 4,
    "agent": 5, "runtime": 5, "replay": 5, "scheduler": 5, "operator": 5, "console": 5, "cli": 5,
    "cmd": 6,
}
PRODUCT = 5
SAME_LEVEL = {("device", "formats"), ("gpu", "oci")}
# What the simulated driver may use; it is used by its own programs in cmd and by tests.
ALLOWED_IN = {"sim": {"base", "formats"}}
# Loaded into other people's programs: without its tests it includes no other room.
STANDALONE = {"limiter"}
# Pure rooms: no files, clocks, threads or sockets.
PURE = {"device": ["src/base/file.h", "src/base/clock.h", "src/base/task_runner.h"],
        "placement": ["src/base/file.h", "src/base/clock.h", "src/base/task_runner.h"]}
LIBRARIES = {
    "grpcpp/": "gRPC", "grpc/": "gRPC", "google/protobuf": "protobuf", "boost/json": "Boost.JSON",
    "boost/asio": "Asio", "boost/beast": "Beast", "openssl/": "OpenSSL", "toml++": "toml++",
    "yaml.h": "libyaml", "CLI/": "CLI11", "simdjson": "simdjson",
}
INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)', re.M)


def room_of(path):
    parts = pathlib.PurePosixPath(path).parts
    return parts[1] if len(parts) > 2 and parts[0] == "src" else None


def is_test(path):
    return path.stem.endswith(("_test", "_benchmark", "_fuzzer")) or "testing" in path.parts


def edge_offence(source, target, test):
    if target == source:
        return None
    if source in STANDALONE and not test:
        ok = False
    elif source in ALLOWED_IN:
        ok = target in ALLOWED_IN[source]
    elif target in ALLOWED_IN:
        ok = source == "cmd" or test
    elif source not in LEVELS or target not in LEVELS:
        return f"room {source if source not in LEVELS else target} has no level"
    else:
        ok = LEVELS[target] < LEVELS[source] or (source, target) in SAME_LEVEL
    return None if ok else f"{source} may not include {target}"


def offences(root):
    found = []
    for path in sorted(root.glob("src/**/*")):
        if path.suffix not in (".h", ".cc", ".c"):
            continue
        name = path.relative_to(root).as_posix()
        room = room_of(name)
        if room is None:
            found.append(f"{name}: stands in no room")
            continue
        readme = root / "src" / room / "README.md"
        named = readme.read_text() if readme.exists() else ""
        for quoted, angled in INCLUDE.findall(path.read_text(errors="replace")):
            target = room_of(quoted) if quoted else None
            if target:
                why = edge_offence(room, target, is_test(path))
                if why:
                    found.append(f'{name}: "{quoted}": {why}')
                if quoted in PURE.get(room, []) and not is_test(path):
                    found.append(f'{name}: "{quoted}": {room} is pure')
            for prefix, library in LIBRARIES.items():
                if (angled or "").startswith(prefix) and library not in named and room != "cmd":
                    found.append(f"{name}: <{angled}>: src/{room}/README.md does not name {library}")
    products = {}
    for path in sorted(root.glob("src/cmd/**/*.cc")):
        used = {room_of(q) for q, _ in INCLUDE.findall(path.read_text()) if q and room_of(q)}
        products[path] = {room for room in used if LEVELS.get(room) == PRODUCT}
        if len(products[path]) > 1:
            found.append(f"{path.relative_to(root)}: uses several products: {sorted(products[path])}")
    return found


def self_test():
    plants = {
        "src/base/a.cc": ('#include "src/formats/json.h"', "base may not include formats"),
        "src/agent/a.cc": ('#include "src/runtime/x.h"', "agent may not include runtime"),
        "src/gpu/a.cc": ('#include "src/net/x.h"', "gpu may not include net"),
        "src/net/a.cc": ("#include <boost/beast.hpp>", "does not name Beast"),
        "src/placement/a.cc": ('#include "src/base/clock.h"', "placement is pure"),
        "src/agent/b.cc": ('#include "src/sim/state.h"', "agent may not include sim"),
        "src/limiter/a.cc": ('#include "src/base/file.h"', "limiter may not include base"),
        "src/cmd/x/main.cc": ('#include "src/agent/a.h"\n#include "src/runtime/b.h"',
                              "uses several products"),
    }
    for name, (text, wanted) in plants.items():
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / name
            path.parent.mkdir(parents=True)
            path.write_text(text)
            got = offences(pathlib.Path(folder))
            if not any(wanted in line for line in got):
                sys.exit(f"planted {name} was not found: {got}")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "src/agent/a.cc"
        path.parent.mkdir(parents=True)
        path.write_text('#include "src/gpu/nvml.h"\n#include <vector>\n')
        if offences(pathlib.Path(folder)):
            sys.exit("a lawful include was refused")


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        self_test()
    else:
        bad = offences(pathlib.Path(sys.argv[1]))
        print("\n".join(bad) or "every include goes downward")
        sys.exit(1 if bad else 0)
