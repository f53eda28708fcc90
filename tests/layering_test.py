#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the layering: reads every #include below src/, and fails if a room includes a room of a
higher level, if a product includes another product or a header of testing/, if a room uses a
library that its README does not name, or if two files define types with one name but different
meanings.

  layering_test.py ROOT   checks the tree; `--self-test` checks this program with planted offences.
"""

import pathlib
import re
import sys
import tempfile

# A room may include itself, rooms of lower levels, and the rooms that SAME_LEVEL pairs it with.
LEVELS = {
    "base": 0,
    "formats": 1, "device": 1, "limiter": 1,
    "placement": 2, "net": 2, "gpu": 2, "oci": 2,
    "kube": 3, "grant": 3, "trace": 3,
    "ledger": 4, "certificates": 4, "components": 4,
    # The scheduler serves the webhook from its own ledger, so admission stands below the products.
    "admission": 4.5,
    "agent": 5, "runtime": 5, "replay": 5, "scheduler": 5, "operator": 5, "console": 5, "cli": 5,
    "cmd": 6,
}
PRODUCT = 5
# Rooms inside the agent. They too may include only rooms of lower levels. The files in src/agent
# itself use all of them, and none of them includes these files.
AGENT_LEVELS = {
    "agent/kubelet": 0, "agent/pods": 0, "agent/node": 0,
    "agent/grants": 1,
    "agent/limits": 2, "agent/compat": 2,
    "agent/exporter": 3,
    "agent": 4,
}
SAME_LEVEL = {("device", "formats"), ("gpu", "oci")}
# What the simulated driver may use; it is used by its own programs in cmd and by tests.
ALLOWED_IN = {"sim": {"base", "formats"}}
# The limiter is loaded into other people's programs, so only its tests include other rooms.
STANDALONE = {"limiter"}
# Pure rooms: no files, clocks, threads or sockets.
PURE = {"device": ["src/base/file.h", "src/base/clock.h", "src/base/task_runner.h"],
        "placement": ["src/base/file.h", "src/base/clock.h", "src/base/task_runner.h"],
        "components": ["src/base/file.h", "src/base/clock.h", "src/base/task_runner.h"]}
LIBRARIES = {
    "grpcpp/": "gRPC", "grpc/": "gRPC", "google/protobuf": "protobuf", "boost/json": "Boost.JSON",
    "boost/asio": "Asio", "boost/beast": "Beast", "boost/unordered": "Boost.Unordered", "openssl/": "OpenSSL", "toml++": "toml++",
    "yaml.h": "libyaml", "nghttp2/": "nghttp2", "CLI/": "CLI11", "simdjson": "simdjson",
}
# Type names with two meanings, each with the room that may define it once more. An allocation of
# CUDA is the same thing to the limiter and to the simulated driver, but they share no code.
TWO_MEANINGS = {"Allocation": "sim"}
# Names of nested types that say the role of the type for the class around it.
ROLES = {"Core", "Delegate", "Entry", "Events", "Handler", "Hash", "Impl", "Key", "Kind", "Options",
         "Sources", "State"}
TYPE = re.compile(r"^([ \t]*)(?:template\s*<[^>]*>\s*)?(?:class|struct|union|enum(?: class)?)\s+"
                  r"(?:\[\[\w+\]\]\s*)?(\w+)(?:\s+final)?\s*(?::(?!:)[^;{]*)?\{", re.M)
ALIAS = re.compile(r"^using\s+(\w+)\s*=\s*([^;]+);", re.M)
INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)', re.M)


def room_of(path):
    parts = pathlib.PurePosixPath(path).parts
    return parts[1] if len(parts) > 2 and parts[0] == "src" else None


def agent_room_of(path):
    """"agent/grants" for a file of that room, "agent" for one beside them, None for all others."""
    parts = pathlib.PurePosixPath(path).parts
    if room_of(path) != "agent":
        return None
    return "/".join(parts[1:3]) if len(parts) > 3 else "agent"


def agent_edge_offence(source, target):
    if source == target:
        return None
    for room in (source, target):
        if room not in AGENT_LEVELS:
            return f"room {room} has no level"
    ok = AGENT_LEVELS[target] < AGENT_LEVELS[source]
    return None if ok else f"{source} may not include {target}"


def is_test(path):
    return (path.stem.endswith(("_test", "_benchmark", "_fuzzer", "fixture"))
            or "testing" in path.parts)


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


def types_of(text):
    """The names of the types that a file defines, also in classes, and what tells two meanings
    apart: two aliases of one type are one meaning."""
    for indentation, name in TYPE.findall(text):
        if not indentation or name not in ROLES:
            yield name, None
    for name, meaning in ALIAS.findall(text):
        if not meaning.endswith("::" + name):
            yield name, " ".join(meaning.split())


def two_meanings(root):
    meanings = {}
    for path in sorted(root.glob("src/**/*")):
        name = path.relative_to(root).as_posix()
        if path.suffix not in (".h", ".cc", ".c") or is_test(path):
            continue
        for type_name, meaning in types_of(path.read_text(errors="replace")):
            meanings.setdefault(type_name, {}).setdefault(meaning or name, name)
    for type_name, files in sorted(meanings.items()):
        excused = [file for file in files.values() if room_of(file) == TWO_MEANINGS.get(type_name)]
        if len(files) - len(excused) > 1:
            yield f"type {type_name} has several meanings: {', '.join(sorted(files.values()))}"


def offences(root):
    found = list(two_meanings(root))
    for path in sorted(root.glob("src/**/*")):
        if path.suffix not in (".h", ".cc", ".c"):
            continue
        name = path.relative_to(root).as_posix()
        room = room_of(name)
        if room is None:
            found.append(f"{name}: stands in no room")
            continue
        inner = agent_room_of(name)
        home = inner or room
        readme = root / "src" / home / "README.md"
        named = readme.read_text() if readme.exists() else ""
        for quoted, angled in INCLUDE.findall(path.read_text(errors="replace")):
            target = room_of(quoted) if quoted else None
            if target:
                why = edge_offence(room, target, is_test(path))
                if not why and inner and agent_room_of(quoted):
                    why = agent_edge_offence(inner, agent_room_of(quoted))
                if why:
                    found.append(f'{name}: "{quoted}": {why}')
                if "testing" in pathlib.PurePosixPath(quoted).parts and not is_test(path):
                    found.append(f'{name}: "{quoted}": only tests include testing/')
                if quoted in PURE.get(room, []) and not is_test(path):
                    found.append(f'{name}: "{quoted}": {room} is pure')
            for prefix, library in LIBRARIES.items():
                if (angled or "").startswith(prefix) and library not in named and room != "cmd":
                    found.append(f"{name}: <{angled}>: src/{home}/README.md does not name {library}")
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
        "src/agent/kubelet/a.cc": ('#include "src/agent/grants/x.h"',
                                   "agent/kubelet may not include agent/grants"),
        "src/agent/node/a.cc": ('#include "src/agent/pods/x.h"',
                                "agent/node may not include agent/pods"),
        "src/agent/grants/a.cc": ('#include "src/agent/limits/x.h"',
                                  "agent/grants may not include agent/limits"),
        "src/agent/pods/testing/a.h": ('#include "src/agent/agent.h"',
                                       "agent/pods may not include agent"),
        "src/agent/other/a.cc": ('#include "src/agent/pods/x.h"', "agent/other has no level"),
        "src/agent/pods/b.cc": ("#include <grpcpp/grpcpp.h>",
                                "src/agent/pods/README.md does not name gRPC"),
        "src/placement/b.cc": ('#include "src/placement/testing/x.h"', "only tests include testing/"),
        "src/certificates/a.cc": ('#include "src/admission/x.h"',
                                  "certificates may not include admission"),
        "src/admission/a.cc": ('#include "src/scheduler/x.h"',
                               "admission may not include scheduler"),
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
    for files, wanted in (
        ({"src/net/a.h": "struct Plan {", "src/grant/b.cc": "class Plan final : public X {"}, True),
        ({"src/net/a.h": "using Id = int;", "src/grant/b.h": "using Id = long;"}, True),
        ({"src/net/a.h": "struct View {", "src/cli/b.h": "enum class View : int {"}, True),
        ({"src/net/a.h": "using Id = int;", "src/grant/b.h": "using Id  = int;"}, False),
        ({"src/net/a.h": "class Id {", "src/grant/b.h": "using Id = net::Id;"}, False),
        ({"src/limiter/a.h": "struct Allocation {", "src/sim/b.h": "struct Allocation {"}, False),
        ({"src/net/a.h": "class Plan {", "src/grant/b.h": "class A {\n  struct Plan {"}, True),
        ({"src/net/a.h": "class B {\n  struct Options {",
          "src/grant/b.h": "class A {\n  struct Options {"}, False),
        ({"src/net/a.h": "class Plan {", "src/net/a.cc": "struct Plan::Core {"}, False),
        ({"src/net/a.h": "class Plan {", "src/net/a_test.cc": "class Plan {"}, False),
        ({"src/net/a.h": "class Plan {", "src/grant/b.h": "class Plan;"}, False),
    ):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = pathlib.Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text + "\n")
            got = offences(pathlib.Path(folder))
            if any("has several meanings" in line for line in got) != wanted:
                sys.exit(f"planted types {files}: {got}")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "src/agent/compat/a.cc"
        path.parent.mkdir(parents=True)
        path.write_text('#include "src/gpu/nvml.h"\n#include <vector>\n'
                        '#include "src/agent/grants/a.h"\n#include "src/agent/compat/b.h"\n')
        if offences(pathlib.Path(folder)):
            sys.exit("a lawful include was refused")


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        self_test()
    else:
        bad = offences(pathlib.Path(sys.argv[1]))
        if bad:
            sys.exit("\n".join(bad) + "\nmove the code to the room that may include it (CONTRIBUTING.md, Rooms), "
                     f"or name the library in the README; then run python3 tests/layering_test.py {sys.argv[1]}")
        print("every include goes downward")
