"""What is stored of a run beside its scores: its task in numbers and its costs."""

from __future__ import annotations

from typing import Any

from torch import nn

from bench.backbones import fresh_head
from bench.budget import Plan
from bench.data.task import Task
from bench.method import Method
from bench.planning import inference_flops
from bench.suite import RunSpec


def task_facts(task: Task, model: nn.Module) -> dict[str, Any]:
    """What a reader of the scores must know of the data, and of the head of pretrained weights."""
    notes = list(task.notes)
    for module in model.modules():
        reason = fresh_head(module)
        if reason is not None:
            notes.append(f"Of the pretrained weights the classifier is drawn anew: {reason}.")
            break
    return {
        "num_classes": task.num_classes,
        "class_names": list(task.class_names),
        "shift_origin": task.shift_origin,
        "notes": notes,
        "samples": {
            "train": len(task.train),
            "validation": len(task.validation),
            "test": len(task.test),
        },
    }


def cost_facts(
    spec: RunSpec, method: Method, model: nn.Module, task: Task, plan: Plan, seconds: float
) -> dict[str, Any]:
    """What a run cost, in every unit that a budget may have.

    Args:
        spec: the run.
        method: its method.
        model: all members.
        task: its data.
        plan: its steps.
        seconds: that training took, on the wall.
    """
    devices = spec.recipe.devices
    spent = plan.planned
    if spec.budget.match == "device_seconds":
        spent = devices * seconds
    steps = plan.networks * plan.steps
    cost = {
        "members": method.members,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "networks": plan.networks,
        "steps": plan.steps,
        "step_flops": plan.step_flops,
        "train_flops": steps * plan.step_flops,
        "budget_match": spec.budget.match,
        "budget_units": plan.units,
        "budget_spent": spent,
        "budget_deviation": spent / plan.units - 1,
        "devices": devices,
        "device_seconds": devices * seconds,
        "train_images_per_second": steps * spec.recipe.batch_size / max(seconds, 1e-9),
        "inference_flops": inference_flops(model, task),
    }
    if plan.member_chunk:
        cost["member_chunk"] = plan.member_chunk
    return cost
