"""StaticAnswers: an answer is computed once for all servers of a folder, and never given for another question."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path

from plimsoll_ec2.static_answers import Answer, StaticAnswers

HEADERS = [("Content-Type", "text/xml")]
QUESTION = {"Action": "DescribeInstanceTypes"}


class Computed:
    """Returns an answer and counts how often."""

    def __init__(self, status: int, body: bytes) -> None:
        self.answer: Answer = (status, HEADERS, body)
        self.times = 0

    def __call__(self) -> Answer:
        self.times += 1
        return self.answer


class StaticAnswersTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        # The first server creates it.
        self.folder = Path(folder.name, "answers")

    def test_one_server_computes_for_all_of_the_folder(self) -> None:
        first, second = Computed(200, b"<a>\n1</a>"), Computed(200, b"never")
        for answers in (StaticAnswers(self.folder), StaticAnswers(self.folder)):
            for _ in range(2):
                self.assertEqual(answers.get("us-east-1", QUESTION, first if first.times == 0 else second), first.answer)
        self.assertEqual((first.times, second.times), (1, 0))

    def test_without_a_folder_the_server_computes_once(self) -> None:
        answers, computed = StaticAnswers(), Computed(200, b"1")
        answers.get("us-east-1", QUESTION, computed)
        self.assertEqual(answers.get("us-east-1", QUESTION, computed), computed.answer)
        self.assertEqual(computed.times, 1)

    def test_another_region_or_parameter_is_another_question(self) -> None:
        answers = StaticAnswers(self.folder)
        answers.get("us-east-1", QUESTION, Computed(200, b"1"))
        for region, parameters in (("eu-west-1", QUESTION), ("us-east-1", {**QUESTION, "InstanceType.1": "m5.large"})):
            computed = Computed(200, region.encode())
            self.assertEqual(answers.get(region, parameters, computed), computed.answer)

    def test_a_failure_or_a_page_is_not_kept(self) -> None:
        for computed in (Computed(500, b"error"), Computed(200, b"<nextToken>2</nextToken>")):
            answers = StaticAnswers(self.folder)
            answers.get("us-east-1", QUESTION, computed)
            answers.get("us-east-1", QUESTION, computed)
            self.assertEqual(computed.times, 2)
        self.assertFalse(self.folder.exists())


if __name__ == "__main__":
    unittest.main()
