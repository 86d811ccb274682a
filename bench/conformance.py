"""Checks that any method must pass before its numbers mean something.

Each check asks the method's own model, built as the harness builds it, on random images. A check gives
a detail that a person can act on.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor, nn

from bench.backbones import create_backbone
from bench.combine import IndependentMembers
from bench.data.task import UNKNOWN, Outlier, Shift, Split, Task
from bench.errors import NotApplicable, validation_line
from bench.flops import count_flops
from bench.method import Method
from bench.optimise import make_optimizer
from bench.planning import build_network, inference_flops, make_plan
from bench.registry import load_plugin
from bench.suite import Budget, Evaluation, Recipe, RunSpec, TaskSpec
from bench.training import train_step
from bench.weights import load_tensors, save_tensors
