"""Checks of a model in eval mode: repeatable, sample by sample, storable, and at what cost."""

from __future__ import annotations

import torch

from bench.backbones import create_backbone
from bench.conformance.measures import NOISE, Wrong, gap, predict
from bench.conformance.reload import logits_in_fresh_process
from bench.conformance.specimen import Specimen
from bench.conformance.training import trained
from bench.planning import inference_flops, make_plan


def deterministic(specimen: Specimen) -> str:
    """Prediction draws nothing at random and changes nothing in the model."""
    model = specimen.model().eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(1)
    first = predict(model, specimen.images)
    torch.manual_seed(2)
    second = predict(model, specimen.images)
    if not torch.equal(first, second):
        difference = (first - second).abs().max()
        raise Wrong(
            f"two predictions in eval mode differ by {difference:.3g}: draw nothing at "
            "random unless self.training"
        )
    for name, value in model.state_dict().items():
        if not torch.equal(value, before[name]):
            raise Wrong(f"a prediction in eval mode changes {name}")
    return "bit for bit"


def batch_order(specimen: Specimen) -> str:
    """A sample's logits don't depend on its place in the batch."""
    model = specimen.model().eval()
    images = specimen.images[:5]
    order = torch.tensor([3, 0, 4, 2, 1])
    change = gap(predict(model, images[order]), predict(model, images)[order])
    if change > NOISE:
        raise Wrong(
            f"logits change by {change:.3g} of the largest when the batch is re-ordered in "
            "eval mode: every member must see every sample"
        )
    return f"largest change {change:.1g}"


def batch_independence(specimen: Specimen) -> str:
    """A sample's logits don't depend on which others are in its batch, nor on how many."""
    model = specimen.model().eval()
    images = specimen.images[:5]
    whole = predict(model, images)
    others = torch.cat([images[:2], 3 * images[2:] + 1])
    changes = {
        "on the other samples of the batch": gap(predict(model, others)[:2], whole[:2]),
        "on the size of the batch": gap(predict(model, images[:2]), whole[:2]),
    }
    for what, change in changes.items():
        if change > NOISE:
            raise Wrong(
                f"logits depend {what} in eval mode (a change of {change:.3g} of the largest): "
                "use running statistics there"
            )
    return f"largest change {max(changes.values()):.1g}"


def save_and_load(specimen: Specimen) -> str:
    """The stored tensors alone bring the model back, in another process."""
    model = trained(specimen).model if not specimen.method.independent else specimen.model()
    expected = predict(model.eval(), specimen.images)
    found = logits_in_fresh_process(specimen, model)
    change = gap(found, expected)
    if change > NOISE:
        raise Wrong(
            f"after loading in a fresh process, logits differ by {change:.3g} of the largest: "
            "what predicts must be in the state_dict"
        )
    return f"largest change {change:.1g}"


def cost(specimen: Specimen) -> str:
    """What the method costs, relative to a single network; counted without arithmetic."""
    model, task, spec = specimen.model(), specimen.task, specimen.spec
    plan = make_plan(spec, specimen.method, task, specimen.network(), torch.device("cpu"))
    # The budget is one epoch of one batch of one network: its units are one step of that network.
    train = plan.networks * plan.step_flops / plan.units
    single = create_backbone(spec.backbone, task.num_classes, task.input_shape)
    forward = inference_flops(model, task) / inference_flops(single, task)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    ratio = parameters / sum(parameter.numel() for parameter in single.parameters())
    return (
        f"{parameters:,} parameters ({ratio:.2f} × single), a training step {train:.2f} × "
        f"single, a prediction {forward:.2f} × single"
    )
