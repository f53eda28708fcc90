#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the list of what a release is made of, as SPDX 2.3 JSON: Debian's libraries that the programs are
linked with, statically or not. The same packages give the same bytes."""
import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys


def library_packages(path):
    """The packages of scripts/packages.txt below "# libraries of the product", and what programs load."""
    section = re.search(r"^# libraries of the product\n((?:[^#\n].*\n)+)", path.read_text(), re.M)
    if section is None:
        sys.exit(f"{path} has no section \"# libraries of the product\"")
    return [*section.group(1).split(), "libc6", "libssl3"]


def package_of(name):
    shown = subprocess.run(["dpkg-query", "-W", "-f=${Version}\t${source:Package}\t${source:Version}", name],
                           capture_output=True, text=True)
    if shown.returncode != 0:
        sys.exit(f"{name} is not installed: scripts/packages.txt names it: run scripts/check --quick once")
    version, source, source_version = shown.stdout.split("\t")
    return {
        "SPDXID": "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", name), "name": name, "versionInfo": version,
        "supplier": "Organization: Debian", "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
        "sourceInfo": f"built from Debian source package {source} {source_version}",
        "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                          "referenceLocator": f"pkg:deb/debian/{name.replace('+', '%2B')}@{version}"}],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", required=True)
    parser.add_argument("--commit", required=True)
    parser.add_argument("--packages", required=True, type=pathlib.Path)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    options = parser.parse_args()
    made = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
    tessera = {
        "SPDXID": "SPDXRef-tessera", "name": "tessera", "versionInfo": f"{options.version}+{options.commit}",
        "downloadLocation": "NOASSERTION", "filesAnalyzed": False, "licenseDeclared": "Apache-2.0",
    }
    libraries = [package_of(name) for name in sorted(set(library_packages(options.packages)))]
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
