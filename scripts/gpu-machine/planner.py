"""Which stages of a run start next, and with which limits: values in, values out."""

import dataclasses

CLEAN_UP = 20  # seconds that the end of a stage over its limit may take, also if its processes hang in the driver


@dataclasses.dataclass(frozen=True)
class Part:
    """A command of a stage. In its words and variables, {limit} is the seconds that it has, {folder} the stage's folder."""

    name: str
    command: tuple
    most: float = 0  # seconds; 0: those of the stage
    environment: tuple = ()  # (name, value) pairs
    baseline: bool = False  # runs in the environment of the other bundle


@dataclasses.dataclass(frozen=True)
class Stage:
    name: str
    least: float  # seconds; with less it does not start
    most: float  # seconds after which it is ended
    parts: tuple = ()
    needs: frozenset = frozenset()
    shares: bool = False  # the GPU and the processor with its neighbours in the list: its times mean nothing
    timed: bool = False  # only while no other process uses the GPU


@dataclasses.dataclass(frozen=True)
class Step:
    """The stages that start now, each with its limit in seconds; those that never will, each with the reason; and those still to be planned."""

    start: tuple
    skipped: tuple
    rest: tuple


def next_step(stages, budget, elapsed, missing):
    """The first of the stages that can start, with the neighbours that share the machine with it. `missing` maps each need that this
    machine or an earlier stage does not meet to the reason."""
    start, skipped, rest = [], [], list(stages)
    left = budget - elapsed - CLEAN_UP
    while rest:
        stage = rest[0]
        reason = "; ".join(missing[need] for need in sorted(stage.needs & missing.keys()))
        if not reason and left < stage.least and not start:
            reason = f"it takes {stage.least:g} s at least, and {max(left, 0):.0f} s were left"
        if reason:
            skipped.append((stage, reason))
        elif left < stage.least or (start and not (stage.shares and start[0][0].shares)):
            break
        else:
            start.append((stage, min(stage.most, left)))
        rest.pop(0)
    return Step(tuple(start), tuple(skipped), tuple(rest))
