"""A link between two network namespaces that delays, loses or cuts what goes over it.

``tc netem`` does that in the kernel, where the kernel has it. Here a process stands between two tunnel
devices and passes packets on, so that TCP sees true delays and true losses. Linux only, and only for root.
"""

import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 1, 0x1000
_PREFIX = "fkm"


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def why_not():
    """Why there can be no such links on this machine; None if there can."""
    if not Path("/dev/net/tun").exists():
        return "there is no /dev/net/tun"
    try:
        ip("netns", "add", f"{_PREFIX}probe")
        ip("netns", "delete", f"{_PREFIX}probe")
    except (OSError, subprocess.CalledProcessError) as error:
        return f"network namespaces are not permitted: {getattr(error, 'stderr', error)}"
    return None


def _tunnel(name):
    number = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(number, _TUNSETIFF, struct.pack("16sH", name.encode(), _IFF_TUN | _IFF_NO_PI))
    return number


class BadLink:
    """Between this machine and a new namespace, `namespace`.

    Parameters
    ----------
    place : int
        The namespace's end has the address 10.123.`place`.2, ours 10.123.`place`.1.
    delay : float
        Seconds, each way.
    loss : float
        Share of packets that are lost, each way.
    """

    def __init__(self, place, delay=0.0, loss=0.0):
        self.namespace, self.delay, self.loss = f"{_PREFIX}{os.getpid()}-{place}", delay, loss
        self.cut = False
        self.passed = self.lost = 0
        self._random = random.Random(place)
        self._over = False
        name = self.namespace
        ip("netns", "add", name)
        near, far = f"{_PREFIX}{place}a", f"{_PREFIX}{place}b"
        self._ends = (_tunnel(near), _tunnel(far))
        ip("link", "set", far, "netns", name)
        ip("addr", "add", f"10.123.{place}.1/24", "dev", near)
        ip("link", "set", near, "up")
        ip("-n", name, "addr", "add", f"10.123.{place}.2/24", "dev", far)
        ip("-n", name, "link", "set", far, "up")
        ip("-n", name, "link", "set", "lo", "up")
        ip("-n", name, "route", "add", "default", "via", f"10.123.{place}.1")
        self._thread = threading.Thread(target=self._pass_on, daemon=True)
        self._thread.start()

    def _pass_on(self):
        near, far = self._ends
        other = {near: far, far: near}
        due, number = [], 0
        while not self._over:
            wait = min(0.05, max(0.0, due[0][0] - time.monotonic())) if due else 0.05
            for end in select.select(self._ends, [], [], wait)[0]:
                with suppress(BlockingIOError):
                    packet = os.read(end, 65536)
                    if self.cut or self._random.random() < self.loss:
                        self.lost += 1
                        continue
                    number += 1  # packets do not overtake each other
                    heapq.heappush(due, (time.monotonic() + self.delay, number, other[end], packet))
            while due and due[0][0] <= time.monotonic():
                _, _, end, packet = heapq.heappop(due)
                with suppress(OSError):
                    os.write(end, packet)
                    self.passed += 1

    def close(self):
        self._over = True
        self._thread.join()
        for end in self._ends:
            os.close(end)
        ip("netns", "delete", self.namespace)


def _sweep():
    """Delete the namespaces of processes that were killed; their tunnels are gone already."""
    for path in Path("/run/netns").glob(f"{_PREFIX}*-*"):
        pid = path.name.removeprefix(_PREFIX).partition("-")[0]
        if not Path(f"/proc/{pid}").exists():
            ip("netns", "delete", path.name)


@contextmanager
def links(names, **quality):
    """Links by name, each to a namespace of its own."""
    made = {}
    _sweep()
    try:
        for place, name in enumerate(names):
            made[name] = BadLink(place + 1, **quality)
        yield made
    finally:
        for link in made.values():
            link.close()
