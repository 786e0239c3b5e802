"""Further than the totals say: over-relaxation and Anderson mixing, with a safeguard.

Both wrap a way to find the target and need no more communication. They wait until every client has
been heard, and step back to the plain target in every round after which the server's estimate of the
score, which is all it has to judge by, has risen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from fedkmeans._utils.typing import ClientId, FloatArray
from fedkmeans.algorithms.rounds import TargetFinder
from fedkmeans.algorithms.state import State, Target
from fedkmeans.protocol.exchange import Conversation

# Pairs (C, d - C), oldest first, each array of shape (k, m).
Trail: TypeAlias = "tuple[tuple[FloatArray, FloatArray], ...]"
Extrapolation: TypeAlias = Callable[[Trail], FloatArray]


@dataclass(frozen=True, slots=True)
class Accelerated:
    """Memory of an accelerated run: that of the finder inside, the last estimate, and the trail."""

    inner: Any = None
    estimate: float = float("inf")
    trail: Trail = ()


def over_relaxed(trail: Trail, *, factor: float) -> FloatArray:
    """C + a (d - C): the same direction, further."""
    centroids, step = trail[-1]
    return centroids + factor * step


def anderson(trail: Trail) -> FloatArray:
    """Anderson mixing (1965): the combination of earlier steps that would have left the least to do.

    With differences ΔC and ΔF of neighbours on the trail, F = d - C, and γ that minimises
    ‖F - ΔF γ‖, the next centroids are C + F - (ΔC + ΔF) γ.
    """
    centroids, step = trail[-1]
    if len(trail) == 1:
        return centroids + step
    changes = [(c2 - c1, f2 - f1) for (c1, f1), (c2, f2) in pairwise(trail)]
    delta_f = np.stack([f.ravel() for _, f in changes], axis=1)
    delta_both = np.stack([(c + f).ravel() for c, f in changes], axis=1)
    # Steps that hardly differ say nothing: what is below the cut-off is left out.
    gamma = np.linalg.lstsq(delta_f, step.ravel(), rcond=1e-6)[0]
    return centroids + step - (delta_both @ gamma).reshape(step.shape)


def accelerated(
    state: State,
    clients: tuple[ClientId, ...],
    chosen: tuple[ClientId, ...],
    *,
    find_target: TargetFinder,
    extrapolate: Extrapolation,
    depth: int,
) -> Conversation[Target]:
    """Find the plain target, and go on from it where that is safe.

    Parameters
    ----------
    state, clients, chosen
        As for every `TargetFinder`.
    find_target : callable
        Has to estimate the score.
    extrapolate : callable
        From the trail to the target, shape (k, m).
    depth : int
        How many earlier rounds the trail goes back.
    """
    memory: Accelerated = state.memory or Accelerated()
    found = yield from find_target(replace(state, memory=memory.inner), clients, chosen)
    rose = found.estimate > memory.estimate
    trail: Trail = ()
    d = found.d
    if found.window is not None:
        # After a rise what led there is forgotten, too.
        earlier = () if rose else memory.trail
        trail = (*earlier, (state.centroids, found.d - state.centroids))[-1 - depth :]
        d = found.d if rose else extrapolate(trail)
    return replace(found, d=d, memory=Accelerated(found.memory, found.estimate, trail))


def accelerate(find_target: TargetFinder, name: str, factor: float = 1.5) -> TargetFinder:
    """Wrap a finder; `name` is "over-relaxation" (with its factor) or "anderson"."""
    if name == "over-relaxation":
        step = partial(over_relaxed, factor=factor)
        return partial(accelerated, find_target=find_target, extrapolate=step, depth=0)
    return partial(accelerated, find_target=find_target, extrapolate=anderson, depth=5)
