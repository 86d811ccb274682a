"""The one interface a method implements.

This module imports no torch at start, so that listing and checking suites stays quick; a method
that ships here keeps its layers in a module of their own and imports them in `build`.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict, PositiveInt

from bench.errors import NotApplicable

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bench.recipe import Recipe


class Method(BaseModel):
    """A way of making M predictions, with its hyper-parameters as fields.

    A subclass declares `name`, its hyper-parameters (validated; what a suite may set) and `build`.
    The harness does the rest: data, budget, training, evaluation. Every model gives *member
    logits*: ``[B, M, K]`` (batch, member, class); M is 1 for a single network.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: ClassVar[str]
    """What suites and tables call it."""
    independent: ClassVar[bool] = False
    """The harness trains `members` separate networks, each with its own seed and data order."""
    separable: ClassVar[bool] = False
    """``model(x, members=slice)`` gives these members' logits ``[B, m, K]``, and no member's
    training depends on another's activations or on random draws other than dropout's; the
    harness may then train a few at a time."""

    members: PositiveInt = 4

    @abstractmethod
    def build(self, backbone: nn.Module, num_classes: int) -> nn.Module:
        """Make the model that is trained.

        Args:
            backbone: a fresh network, ``[B, C, H, W] -> [B, K]``; it may be changed in place.
            num_classes: K.

        Returns:
            a module, ``[B, C, H, W] -> [B, M, K]``. While training it may give fewer members for a
            sample (``[B, 1, K]`` where each sample trains one member). With `independent` it is one
            member: ``[B, 1, K]``.
        """

    def convert(self, backbone: nn.Module, num_classes: int) -> nn.Module:
        """Make the model from a backbone that has pretrained weights; by default as `build` does.

        What the weights know must be kept: a method that would draw them anew, or start from
        another function, overrides this.

        Args:
            backbone: as for `build`, with pretrained weights; its head is pretrained as well where
                its classes are the task's, else fresh.
            num_classes: K.

        Raises:
            NotApplicable: the method can't keep the weights, or see `supports`; the message is the
                reason.
        """
        reason = self.supports(backbone)
        if reason is not None:
            raise NotApplicable(reason)
        return self.build(backbone, num_classes)

    def loss(self, model: nn.Module, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of a batch: the sum over members of the mean cross-entropy.

        It must be a sum over members, since it may be called with the logits of some of them.

        Args:
            model: what `build` gave.
            logits: ``[B, m, K]``.
            target: class indices ``[B]``.
        """
        from torch.nn import functional

        members = logits.shape[1]
        flat = functional.cross_entropy(logits.flatten(0, 1), target.repeat_interleave(members))
        return flat * members

    def penalty(self, model: nn.Module) -> Tensor | None:
        """A term of the loss that depends on the weights alone, added once a step."""
        return None

    def parameter_groups(self, model: nn.Module, recipe: Recipe) -> list[dict[str, Any]]:
        """The optimiser's parameter groups: by default one, with the recipe's values for all.

        A group may carry ``lr`` and ``weight_decay`` of its own; the schedule scales every ``lr``.
        """
        return [{"params": [p for p in model.parameters() if p.requires_grad]}]

    def facts(self, model: nn.Module) -> dict[str, Any]:
        """What can be said of a trained model beside its scores, stored with the run.

        Returns:
            plain JSON values: numbers, words, lists and mappings.
        """
        return {}

    def supports(self, backbone: nn.Module) -> str | None:
        """Why this method can't treat that backbone, or None when it can."""
        return None
