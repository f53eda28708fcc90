#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the list of what a release is made of, as SPDX 2.3 JSON: Debian's libraries that the programs are
linked with, statically or not, and the npm packages of the console's page. The same packages give the same bytes."""
import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys


def library_packages(path):
    """The libraries of scripts/packages.txt below "# libraries of the product", and what programs load."""
    section = re.search(r"^# libraries of the product\n((?:[^#\n].*\n)+)", path.read_text(), re.M)
    if section is None:
        sys.exit(f"{path} has no section \"# libraries of the product\"")
    # The other packages are code generators.
    return [*(name for name in section.group(1).split() if name.endswith("-dev")), "libc6", "libssl3"]


def query(name, root, *fields):
    shown = subprocess.run(["dpkg-query", f"--admindir={root}/var/lib/dpkg", "-W", "-f=" + "\t".join(fields), name],
                           capture_output=True, text=True)
    if shown.returncode != 0:
        sys.exit(f"{name} is not installed: scripts/packages.txt names it: run scripts/check --quick once")
    return shown.stdout.split("\t")


def with_dependencies(names, root):
    """These packages and the libraries that they depend on, whose archives are linked, too."""
    found, left = set(), list(names)
    while left:
        name = left.pop()
        version, depends = query(name, root, "${Version}", "${Depends}")
        if name in found or not version:  # without a version: a virtual package
            continue
        found.add(name)
        # The packages on which libc6-dev depends are linked only into programs that name them.
        if name != "libc6-dev":
            left += re.findall(r"(?:^|, )(lib[^ ,:|]*-dev)\b", depends)
    return sorted(found)


def package_of(name, arch, root):
    version, source, source_version = query(name, root, "${Version}", "${source:Package}", "${source:Version}")
    return {
        "SPDXID": "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", f"{name}-{arch}"), "name": name, "versionInfo": version,
        "supplier": "Organization: Debian", "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
        "sourceInfo": f"built from Debian source package {source} {source_version}",
        "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                          "referenceLocator": f"pkg:deb/debian/{name.replace('+', '%2B')}@{version}?arch={arch}"}],
    }


def web_packages(path):
    """The npm packages of a package-lock.json that the page contains, without those that only build or test it."""
    lock = json.loads(path.read_text())
    return [{
        "SPDXID": "SPDXRef-npm-" + re.sub(r"[^A-Za-z0-9.-]", "-", name), "name": name, "versionInfo": package["version"],
        "downloadLocation": "NOASSERTION", "filesAnalyzed": False, "licenseDeclared": package["license"],
        "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                          "referenceLocator": f"pkg:npm/{name.replace('@', '%40')}@{package['version']}"}],
    } for name, package in ((place.removeprefix("node_modules/"), package) for place, package in lock["packages"].items())
        if name and not package.get("dev")]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", required=True)
    parser.add_argument("--commit", required=True)
    parser.add_argument("--packages", required=True, type=pathlib.Path)
    parser.add_argument("--libraries", required=True, action="append", metavar="ARCHITECTURE=ROOT",
                        help="where the packages of an architecture are installed (repeatable)")
    parser.add_argument("--web", required=True, type=pathlib.Path, help="package-lock.json of the console's page")
    parser.add_argument("--out", required=True, type=pathlib.Path)
    options = parser.parse_args()
    made = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
    tessera = {
        "SPDXID": "SPDXRef-tessera", "name": "tessera", "versionInfo": f"{options.version}+{options.commit}",
        "downloadLocation": "NOASSERTION", "filesAnalyzed": False, "licenseDeclared": "Apache-2.0",
    }
    roots = dict(each.split("=", 1) for each in options.libraries)
    names = library_packages(options.packages)
    libraries = [package_of(name, arch, root) for arch, root in roots.items() for name in with_dependencies(names, root)]
    libraries += web_packages(options.web)
    document = {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"tessera-{options.version}",
        "documentNamespace": f"https://tessera.dev/spdx/{options.version}/{options.commit}",
        "creationInfo": {"created": made.strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": ["Tool: scripts/sbom.py"]},
        "packages": [tessera, *libraries],
        "relationships": [
            {"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": "SPDXRef-tessera"},
            *({"spdxElementId": "SPDXRef-tessera", "relationshipType": "DEPENDS_ON", "relatedSpdxElement": each["SPDXID"]}
              for each in libraries)],
    }
    options.out.write_text(json.dumps(document, indent=1) + "\n")


main()
