"""σN-Ens: one network that answers as M.

Wrap any network, pretrained or not, with `SigmaEnsemble`; it depends on torch alone.
"""

from sigma_nens.context import UnsupportedModuleError
from sigma_nens.convert import find_head, find_norms
from sigma_nens.diversity import diversity_loss, equilibrium_share, temperature_for
from sigma_nens.ensemble import SigmaEnsemble
from sigma_nens.heads import MemberLinear
from sigma_nens.member_ensemble import MemberEnsemble
from sigma_nens.member_norm import MemberNorm
from sigma_nens.norm import SigmaNorm
from sigma_nens.uncertainty import Uncertainty, decompose_uncertainty

__all__ = [
    "MemberEnsemble",
    "MemberLinear",
    "MemberNorm",
    "SigmaEnsemble",
    "SigmaNorm",
    "Uncertainty",
    "UnsupportedModuleError",
    "decompose_uncertainty",
    "diversity_loss",
    "equilibrium_share",
    "find_head",
    "find_norms",
    "temperature_for",
]
