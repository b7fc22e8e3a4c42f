"""SSM parameters of EKS' images: a call never sees only a part of them."""

from __future__ import annotations

import threading
import unittest
from unittest import mock

from moto.ssm.models import ParameterDict

from plimsoll_ec2 import images, patches

NAME = "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/standard/recommended/image_id"


class Slow(dict):
    """Parameters that are written while another call arrives."""

    def __init__(self, parameters: dict[str, str], meanwhile: threading.Thread) -> None:
        super().__init__(parameters)
        self._meanwhile = meanwhile

    def items(self):
        self._meanwhile.start()
        # Ends at once if the other call does not wait for this one.
        self._meanwhile.join(timeout=0.2)
        return super().items()


class ParametersTest(unittest.TestCase):
    def test_a_call_waits_while_another_writes_the_parameters(self) -> None:
        parameters = ParameterDict("123456789012", "us-east-1")
        check = patches._with_eks_parameters(lambda *_: None)
        found = []

        def second() -> None:
            check(parameters, NAME)
            found.append(dict.__contains__(parameters, NAME))

        other = threading.Thread(target=second)
        slow = Slow(images.parameters(), other)
        with mock.patch.object(images, "parameters", lambda: slow):
            check(parameters, NAME)
            other.join()
        self.assertEqual(found, [True])


if __name__ == "__main__":
    unittest.main()
