"""A site that lies: its SuperNode finds a copy of this file as ``sitecustomize.py``, which Python runs first.

Flower starts a process for every message. The n-th of them looks into ``lies`` beside this file for the
n-th word, and tells that lie in place of what the site would have answered.
"""

import os
import sys
from dataclasses import replace
from pathlib import Path

FOLDER = Path(__file__).parent


def lie(kind):
    import numpy as np

    from fedkmeans.flower import message
    from fedkmeans.protocol import codec
    from fedkmeans.protocol.statistics import ClusterStatistics

    encode, write_content = codec.encode, message.write_content

    def alter(record):
        if not isinstance(record, ClusterStatistics):
            return record
        sums = record.weighted_sum
        if kind == "error":
            raise ValueError(f"the first row is {sums[0].tolist()} and 4711.25")
        wrong = {
            "shape": np.zeros((len(sums) + 1, sums.shape[1])),
            "missing": np.full_like(sums, np.nan),
            "huge": np.full_like(sums, 1e300),
        }
        return replace(record, weighted_sum=wrong[kind]) if kind in wrong else record

    def alter_content(packed, exchange, client, *, salt=0.0):
        earlier = FOLDER / "earlier.npz"
        if kind == "replay":
            with np.load(earlier) as kept:
                packed = codec.Packed(str(kept["header"]), kept["numbers"])
                exchange = str(kept["exchange"])
        elif kind == "truth":
            np.savez(earlier, header=packed.header, numbers=packed.numbers, exchange=exchange)
        if kind == "version":
            packed = codec.Packed(packed.header.replace('"v":', '"v":9'), packed.numbers)
        if kind == "few":
            packed = codec.Packed(packed.header, packed.numbers[:-1])
        return write_content(packed, exchange, "site-0" if kind == "name" else client, salt=salt)

    codec.encode = lambda record: encode(alter(record))
    message.write_content = alter_content


if "fedkmeans.flower.only_app" in sys.orig_argv:
    number = len(list(FOLDER.glob("asked-*")))
    os.close(os.open(FOLDER / f"asked-{number}", os.O_CREAT | os.O_EXCL))
    lies = (FOLDER / "lies").read_text().split()
    lie(lies[number] if number < len(lies) else "truth")
