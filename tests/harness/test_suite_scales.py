"""Suites at several scales, and what differs for some backbones."""

import pytest
import yaml

from bench.errors import UserError
from bench.suite_files import load_suite

BASE = {
    "name": "mine",
    "tasks": ["digits"],
    "backbones": ["resnet8", "resnet20"],
    "methods": ["single", "sigma_nens"],
    "seeds": [0, 1],
    "budget": {"epochs": 30, "networks": 2},
    "recipe": {"learning_rate": 0.2, "batch_size": 16},
    "scale": "full",
    "scales": {
        "full": {},
        "small": {"budget": {"epochs": 1}, "seeds": [7], "backbones": ["resnet8"]},
    },
}


def write(tmp_path, **changes):
    path = tmp_path / "mine.yaml"
    content = {**BASE, **changes}
    path.write_text(
        yaml.safe_dump({k: v for k, v in content.items() if v is not ...}, sort_keys=False)
    )
    return str(path)


def test_a_scale_is_merged_into_the_suite(tmp_path):
    full, small = (load_suite(write(tmp_path), (), scale) for scale in ("full", "small"))
    assert load_suite(write(tmp_path)) == full
    assert (full.name, small.name) == ("mine-full", "mine-small")
    assert (full.scale, small.scale) == ("full", "small")
    assert (full.budget.epochs, small.budget.epochs) == (30, 1)
    assert small.budget.networks == 2
    assert small.seeds == (7,)
    assert small.backbones == ("resnet8",)
    assert small.recipe == full.recipe


def test_settings_of_the_command_line_come_after_the_scale(tmp_path):
    suite = load_suite(write(tmp_path), ("budget.epochs=5",), "small")
    assert suite.budget.epochs == 5
    assert suite.seeds == (7,)


@pytest.mark.parametrize(
    ("changes", "scale", "message"),
    [
        ({}, "smal", "did you mean small"),
        ({"scale": "ful"}, None, "did you mean full"),
        ({"scale": ...}, None, "`scale` must name the default among full, small"),
        ({"scales": ..., "scale": ...}, "tiny", "has no `scales`: leave --scale out"),
        ({"scales": ["full"]}, None, "scales: must map names"),
        ({"scales": {"full": 3}}, None, "scales: must map names"),
        ({"scales": {"full": {"budgets": {}}}}, None, "did you mean 'budget'"),
        ({}, "", "unknown scale ''"),
        ({"name": ...}, None, "name: Field required"),
        ({"name": 3}, None, "name: Input should be a valid string"),
        ({"scales": ...}, None, "names one of `scales`, which are not there"),
        ({"scales": {"full": {}, "a b": {}}}, None, "scales: 'a b': must be letters"),
        ({"scales": {"full": {"scale": "small"}}}, None, "full: a scale can't hold 'scale'"),
        ({"scales": {"full": {"scales": {}}}}, None, "full: a scale can't hold 'scales'"),
        ({"scales": {"full": {"seeds": []}}}, None, "seeds: .* at least 1 item"),
    ],
)
def test_scales_that_cannot_be(tmp_path, changes, scale, message):
    with pytest.raises(UserError, match=message) as error:
        load_suite(write(tmp_path, **changes), (), scale)
    assert "\n" not in str(error.value)


def test_backbones_are_trained_by_the_first_pattern_that_fits(tmp_path):
    changes = {
        "resnet2*": {"recipe": {"learning_rate": 0.01}, "budget": {"epochs": 3}},
        "resnet*": {"recipe": {"batch_size": 8}},
    }
    runs = load_suite(write(tmp_path, for_backbones=changes), (), "full").runs()
    found = {
        (run.backbone, run.recipe.learning_rate, run.recipe.batch_size, run.budget.epochs)
        for run in runs
    }
    assert found == {("resnet8", 0.2, 8, 30), ("resnet20", 0.01, 16, 3)}
    assert {run.budget.networks for run in runs} == {2}


def test_settings_of_the_command_line_reach_what_a_pattern_leaves_alone(tmp_path):
    changes = {"resnet20": {"recipe": {"learning_rate": 0.01}}}
    suite = load_suite(write(tmp_path, for_backbones=changes), ("recipe.batch_size=4",))
    assert {run.recipe.batch_size for run in suite.runs()} == {4}


@pytest.mark.parametrize(
    ("setting", "rates", "sizes", "epochs"),
    [
        ("recipe.learning_rate=0.5", {0.5}, {16, 8}, {30, 3}),
        ("budget.epochs=2", {0.2, 0.01}, {16, 8}, {2}),
        ("recipe={learning_rate: 0.3}", {0.3}, {128}, {30, 3}),
    ],
)
def test_settings_of_the_command_line_hold_for_all_backbones(
    tmp_path, setting, rates, sizes, epochs
):
    own = {"recipe": {"learning_rate": 0.01, "batch_size": 8}, "budget": {"epochs": 3}}
    suite = load_suite(write(tmp_path, for_backbones={"resnet20": own}), (setting,))
    runs = suite.runs()
    assert {run.recipe.learning_rate for run in runs} == rates
    assert {run.recipe.batch_size for run in runs} == sizes
    assert {run.budget.epochs for run in runs} == epochs


def test_a_scale_takes_a_pattern_back(tmp_path):
    changes = {"resnet20": {"recipe": {"learning_rate": 0.01}}}
    scales = {
        "full": {},
        "one": {"for_backbones": {"resnet20": None}},
        "all": {"for_backbones": None},
    }
    path = write(tmp_path, for_backbones=changes, scales=scales)
    for scale in ("one", "all"):
        rates = {run.recipe.learning_rate for run in load_suite(path, (), scale).runs()}
        assert rates == {0.2}


@pytest.mark.parametrize("name", ["paper", "published"])
def test_names_of_other_folders_of_results_are_taken(tmp_path, name):
    with pytest.raises(UserError, match="is taken"):
        load_suite(write(tmp_path, name=name, scales=..., scale=...))
    assert load_suite(write(tmp_path, name=name)).name == f"{name}-full"


def test_a_check_over_several_values_says_no_more_than_what_is_wrong(tmp_path):
    patterns = {"resnet8": {"recipe": {"devices": 3}}}
    with pytest.raises(UserError) as error:
        load_suite(write(tmp_path, for_backbones=patterns))
    assert str(error.value) == (
        "suite mine-full: for_backbones: 'resnet8': recipe: "
        "batch_size=16 can't be shared evenly by devices=3: 15 can"
    )


@pytest.mark.parametrize("setting", ["scale=small", "scales.small.seeds=[3]"])
def test_a_setting_is_no_way_to_choose_a_scale(tmp_path, setting):
    with pytest.raises(UserError, match="with --scale NAME"):
        load_suite(write(tmp_path), (setting,))


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        ({"*": {}, "resnet8": {}}, "'resnet8' is never used, as patterns before it"),
        ({"resnet8": {}, "resnet20": {}, "resnet*": {}}, "'resnet\\*' is never used"),
        ({"resnet9*": {}}, "'resnet9\\*' fits none of the backbones resnet8, resnet20"),
        ({"resnet8": {"recipe": {"learning_rat": 1}}}, "did you mean 'learning_rate'"),
        ({"resnet8": {"recipe": {"learning_rate": -1}}}, "greater than 0"),
        ({"resnet8": {"budget": {"epoch": 1}}}, "did you mean 'epochs'"),
        ({"resnet8": {"recip": {}}}, "did you mean 'recipe'"),
        ({"resnet8": 3}, "for_backbones"),
        ([1], "for_backbones"),
    ],
)
def test_patterns_that_cannot_be(tmp_path, patterns, message):
    with pytest.raises(UserError, match=message) as error:
        load_suite(write(tmp_path, for_backbones=patterns))
    assert "\n" not in str(error.value)


def test_fewer_backbones_than_the_file_has(tmp_path):
    path = write(tmp_path, for_backbones={"resnet20": {"recipe": {"learning_rate": 0.01}}})
    runs = load_suite(path, ("backbones=[resnet8]",)).runs()
    assert {run.recipe.learning_rate for run in runs} == {0.2}


def test_fewer_methods_and_so_fewer_backbones_than_the_file_has(tmp_path):
    methods = ["single", {"name": "sigma_nens", "backbones": ["wrn16_4"]}]
    patterns = {"wrn*": {"recipe": {"learning_rate": 0.01}}}
    path = write(tmp_path, methods=methods, for_backbones=patterns)
    runs = load_suite(path, ("methods=[single]",)).runs()
    assert {run.backbone for run in runs} == {"resnet8", "resnet20"}


def test_a_method_with_backbones_of_its_own(tmp_path):
    methods = ["single", {"name": "sigma_nens", "backbones": ["resnet8", "wrn16_4"]}]
    runs = load_suite(write(tmp_path, methods=methods)).runs()
    assert {(run.method, run.backbone) for run in runs} == {
        ("single", "resnet8"),
        ("single", "resnet20"),
        ("sigma_nens", "resnet8"),
        ("sigma_nens", "wrn16_4"),
    }


def test_a_method_with_a_backbone_that_is_none(tmp_path):
    methods = ["single", {"name": "sigma_nens", "backbones": ["wrn16_5"]}]
    with pytest.raises(UserError, match="wrn16_4"):
        load_suite(write(tmp_path, methods=methods))
