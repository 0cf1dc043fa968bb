#!/usr/bin/env python3
"""Lists the third-party parts of the released programs:

    scripts/third_party.py FOLDER

writes FOLDER/sbom.spdx.json (SPDX 2.3) and FOLDER/THIRD-PARTY (licences, with their texts), from
what cargo resolves for this target with the default features. Times come from SOURCE_DATE_EPOCH.
"""

import datetime
import hashlib
import json
import os
import re
import subprocess
import sys

PROGRAMS = ["hotrow", "hotrow-lab"]
LICENCE_NAME = re.compile(r"^(licen[cs]e|copying|copyright|notice|unlicense)", re.IGNORECASE)
UPLOT = "assets/uplot"
"""Parts that are not crates: what this folder holds is in the pages of the programs."""


def cargo(*arguments):
    return subprocess.run(["cargo", *arguments], check=True, stdout=subprocess.PIPE,
                          text=True).stdout


def linked():
    """Returns name and version of each crate in the programs; not those of builds and tests."""
    packages = [option for program in PROGRAMS for option in ("-p", program)]
    lines = cargo("tree", "--locked", "-e", "normal", "--prefix", "none", "--no-dedupe",
                  "-f", "{p}", *packages).splitlines()
    return {tuple(line.split()[:2]) for line in lines if line}


def crates():
    """Returns cargo's description of each third-party crate in the programs, by name."""
    metadata = json.loads(cargo("metadata", "--locked", "--format-version", "1"))
    wanted = linked()
    found = [package for package in metadata["packages"]
             if package["source"] and (package["name"], "v" + package["version"]) in wanted]
    return sorted(found, key=lambda package: (package["name"], package["version"]))


def checksums():
    """Returns the SHA-256 of each crate's archive, by name and version, from Cargo.lock."""
    with open("Cargo.lock") as file:
        blocks = file.read().split("[[package]]")
    fields = [dict(re.findall(r'^(\w+) = "(.*)"$', block, re.MULTILINE)) for block in blocks]
    return {(f["name"], f["version"]): f["checksum"] for f in fields if "checksum" in f}


def licence_texts(folder):
    """Returns the texts of the licence files in a folder, by name."""
    texts = {}
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if LICENCE_NAME.match(name) and os.path.isfile(path):
            with open(path, errors="replace") as file:
                texts[name] = file.read().strip() + "\n"
    return texts


def licences(packages):
    """Returns the list of licences, and each text once, with the crates that it belongs to."""
    out = ["Third-party parts of Hotrow and their licences.\n"]
    out += [f"{p['name']} {p['version']}: {p['license'] or 'see its text'}" for p in packages]
    out.append("uPlot: MIT\nSQLite: in the public domain")
    users, texts = {}, {}
    folders = [(f"{p['name']} {p['version']}", os.path.dirname(p["manifest_path"]))
               for p in packages]
    for name, folder in [*folders, ("uPlot", UPLOT)]:
        for text in licence_texts(folder).values():
            digest = hashlib.sha256(" ".join(text.split()).encode()).hexdigest()
            texts.setdefault(digest, text)
            users.setdefault(digest, []).append(name)
    for digest, names in users.items():
        out.append(f"\n{'-' * 78}\n{', '.join(dict.fromkeys(names))}\n\n{texts[digest]}")
    return "\n".join(out) + "\n"


def sbom(packages, version):
    """Returns the parts as an SPDX document."""
    time = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]),
                                           datetime.timezone.utc)
    sums = checksums()
    commit = os.environ.get("HOTROW_COMMIT") or "unknown"
    root = {"SPDXID": "SPDXRef-hotrow", "name": "hotrow", "versionInfo": version,
            "downloadLocation": "NOASSERTION", "licenseDeclared": "Apache-2.0"}
    parts = [
        {
            "SPDXID": "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", f"{p['name']}-{p['version']}"),
            "name": p["name"],
            "versionInfo": p["version"],
            "downloadLocation": "NOASSERTION",
            # An old form of "either".
            "licenseDeclared": (p["license"] or "NOASSERTION").replace("/", " OR "),
            "checksums": [{"algorithm": "SHA256",
                           "checksumValue": sums[p["name"], p["version"]]}],
            "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                              "referenceLocator": f"pkg:cargo/{p['name']}@{p['version']}"}],
        }
        for p in packages
    ]
    describes = {"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES",
                 "relatedSpdxElement": root["SPDXID"]}
    contains = [{"spdxElementId": root["SPDXID"], "relationshipType": "DEPENDS_ON",
                 "relatedSpdxElement": part["SPDXID"]} for part in parts]
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"hotrow-{version}",
        "documentNamespace": f"https://hotrow.invalid/spdx/{version}/{commit}",
        "creationInfo": {"created": time.strftime("%Y-%m-%dT%H:%M:%SZ"),
                         "creators": ["Tool: scripts/third_party.py"]},
        "packages": [root, *parts],
        "relationships": [describes, *contains],
    }


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = sys.argv[1]
    os.chdir(os.path.join(os.path.dirname(os.path.realpath(__file__)), ".."))
    packages = crates()
    version = re.search(r'^version = "(.*)"', open("Cargo.toml").read(), re.MULTILINE)[1]
    with open(os.path.join(folder, "THIRD-PARTY"), "w") as file:
        file.write(licences(packages))
    with open(os.path.join(folder, "sbom.spdx.json"), "w") as file:
        json.dump(sbom(packages, version), file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
