"""Checks documents against the JSON schema that CycloneDX publishes, and that all their references lead somewhere."""

import json
import sys

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator


def faults(text: str) -> list[str]:
    document = json.loads(text)
    version = SchemaVersion.from_version(document["specVersion"])
    error = JsonStrictValidator(version).validate_str(text)
    if error is not None:
        return [str(error)]
    known = [document["metadata"]["component"]["bom-ref"]] + [one["bom-ref"] for one in document["components"]]
    found = [f"two components are {ref}" for ref in sorted({ref for ref in known if known.count(ref) > 1})]
    for dependency in document["dependencies"]:
        for ref in [dependency["ref"], *dependency["dependsOn"]]:
            if ref not in known:
                found.append(f"no component is {ref}")
    return found


def main(paths: list[str]) -> int:
    status = 0
    for path in paths:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        for fault in faults(text):
            print(f"{path}: {fault}", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
