"""The least that anything on Ray takes: `python -m bench.peers.rayactor ADDRESS` joins and asks an actor once."""

from __future__ import annotations

import os
import sys
from typing import Any

from bench.peers.objects import QUIET


class Empty:
    def answer(self) -> None:
        """Nothing."""


def main() -> None:
    os.environ.update(QUIET)
    import ray

    ray.init(sys.argv[1], log_to_driver=False, configure_logging=False)
    actor: Any = ray.remote(num_cpus=1)(Empty)
    ray.get(actor.remote().answer.remote())
    os._exit(0)  # what comes after the answer is not measured


if __name__ == "__main__":
    main()
