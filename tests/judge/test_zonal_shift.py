"""The request and the answer that the AWS adapter is tested with, by AWS' own model of ARC zonal shift."""

from __future__ import annotations

import copy
import json
import unittest
from datetime import datetime
from pathlib import Path
from typing import Any

import botocore.session
from botocore.parsers import create_parser
from botocore.serialize import create_serializer
from botocore.validate import ParamValidator

OPERATION = botocore.session.get_session().get_service_model("arc-zonal-shift").operation_model("GetManagedResource")
EXAMPLE = json.loads((Path(__file__).parent / "examples" / "get-managed-resource.json").read_text())


def faults(answer: dict[str, Any]) -> list[str]:
    """What the model does not allow: values, missing and unknown members."""
    found = [str(ParamValidator().validate(times(answer), OPERATION.output_shape).generate_report())]
    return [fault for fault in found if fault] + list(unknown(OPERATION.output_shape, answer, "answer"))


def times(value: Any) -> Any:
    """JSON has times as numbers, the validator wants them as times."""
    if isinstance(value, list):
        return [times(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: datetime.fromtimestamp(item) if key.endswith("Time") else times(item) for key, item in value.items()}


def unknown(shape: Any, value: Any, path: str):
    if shape.type_name == "structure":
        for name, item in value.items():
            if name in shape.members:
                yield from unknown(shape.members[name], item, f"{path}.{name}")
            else:
                yield f"{path}.{name}: unknown"
    elif shape.type_name == "list":
        for index, item in enumerate(value):
            yield from unknown(shape.member, item, f"{path}[{index}]")
    elif shape.type_name == "string" and getattr(shape, "enum", None) and value not in shape.enum:
        yield f"{path}: {value}"


class GetManagedResource(unittest.TestCase):
    def test_the_path_names_the_cluster(self) -> None:
        serializer = create_serializer("rest-json")
        request = serializer.serialize_to_request({"resourceIdentifier": EXAMPLE["arn"]}, OPERATION)
        self.assertEqual((request["method"], request["url_path"]), ("GET", EXAMPLE["path"]))

    def test_the_answer_is_of_the_model(self) -> None:
        self.assertEqual(faults(EXAMPLE["answer"]), [])
        body = {"status_code": 200, "headers": {}, "body": json.dumps(EXAMPLE["answer"]).encode()}
        parsed = create_parser("rest-json").parse(body, OPERATION.output_shape)
        self.assertEqual([shift["awayFrom"] for shift in parsed["zonalShifts"]], ["use1-az1", "use1-az2"])
        wrong = copy.deepcopy(EXAMPLE["answer"])
        wrong["autoshifts"][0]["appliedStatus"] = "ON"
        wrong["zonalShifts"][0].pop("expiryTime")
        wrong["shifts"] = []
        self.assertEqual(len(faults(wrong)), 3, "the judge must see what is wrong")


if __name__ == "__main__":
    unittest.main()
