"""A Ray cluster of one node for the others in this directory: `python -m bench.peers.raynode CORES`.

It prints its address, and ends with its standard input: `ray stop` would end the clusters of others too.
"""

from __future__ import annotations

import os
import sys

from bench.peers.objects import QUIET

OBJECT_STORE_BYTES = 256 << 20


def main() -> None:
    os.environ.update(QUIET)
    from ray.cluster_utils import Cluster

    node = {"num_cpus": int(sys.argv[1]), "object_store_memory": OBJECT_STORE_BYTES, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=node)
    print(cluster.address, flush=True)
    sys.stdin.read()
    cluster.shutdown()


if __name__ == "__main__":
    main()
