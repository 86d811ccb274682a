"""The list of checks, in the order in which they are tried and shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.conformance import contract, learning, prediction
from bench.conformance.specimen import Specimen


@dataclass(frozen=True)
class Check:
    """A check.

    Attributes:
        name: what a person sees.
        look: gives what was measured, or raises.
        needs: checks without which this one can't be tried, or would only repeat their complaint.
    """

    name: str
    look: Callable[[Specimen], str]
    needs: tuple[str, ...] = ()


MODEL = ("build", "logits")
EVAL = (*MODEL, "deterministic")
TRAINING = (*MODEL, "loss", "registered", "parameter groups")

CHECKS = (
    Check("hyper-parameters", contract.hyper_parameters),
    Check("build", contract.build),
    Check("logits", contract.logits, ("build",)),
    Check("loss", contract.loss, MODEL),
    Check("registered", contract.registered, (*MODEL, "loss")),
    Check("parameter groups", contract.parameter_groups, ("build",)),
    Check("gradients", learning.every_parameter_learns, TRAINING),
    Check("members differ", learning.members_differ, MODEL),
    Check("deterministic", prediction.deterministic, MODEL),
    Check("batch order", prediction.batch_order, EVAL),
    Check("batch independence", prediction.batch_independence, EVAL),
    Check("member chunks", learning.member_chunks, (*EVAL, "loss")),
    Check("seeds", learning.seeds, ("build",)),
    Check("save and load", prediction.save_and_load, (*TRAINING, "deterministic")),
    Check("cost", prediction.cost, (*MODEL, "loss", "registered")),
)
