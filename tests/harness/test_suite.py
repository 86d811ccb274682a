import pytest
import yaml

from bench.errors import UserError
from bench.suite import Suite
from bench.suite_files import load_suite, scales_of, shipped_suites

BASE = {
    "name": "mine",
    "tasks": ["digits"],
    "backbones": ["resnet8"],
    "methods": ["single", "sigma_nens"],
    "seeds": [0, 1],
    "budget": {"epochs": 3},
}


def write(tmp_path, **changes):
    content = {**BASE, **changes}
    path = tmp_path / "mine.yaml"
    given = {key: value for key, value in content.items() if value is not None}
    path.write_text(yaml.safe_dump(given))
    return str(path)


@pytest.mark.parametrize("name", shipped_suites())
def test_shipped_suites_expand(name):
    for scale in scales_of(name) or (None,):
        suite = load_suite(name, (), scale)
        assert suite.name == (f"{name}-{scale}" if scale else name)
        assert suite.runs()
        assert suite.description


def test_matrix(tmp_path):
    runs = load_suite(write(tmp_path, backbones=["resnet8", "resnet20"])).runs()
    assert len(runs) == 2 * 2 * 2
    assert len({run.id for run in runs}) == 8
    assert {run.parameters["members"] for run in runs if run.method == "single"} == {1}
    assert {run.parameters["members"] for run in runs if run.method == "sigma_nens"} == {4}


def test_members_of_the_suite_and_of_a_method(tmp_path):
    methods = ["deep_ensemble", {"name": "sigma_nens", "members": 8}]
    runs = load_suite(write(tmp_path, methods=methods, members=2)).runs()
    assert {(run.method, run.parameters["members"]) for run in runs} == {
        ("deep_ensemble", 2),
        ("sigma_nens", 8),
    }


def test_grid(tmp_path):
    entry = {"name": "sigma_nens", "grid": {"temperature": [0.1, 1.0], "strength": [0.1, 0.2]}}
    runs = load_suite(write(tmp_path, methods=[entry], seeds=[0])).runs()
    assert len(runs) == 4
    assert "sigma_nens (strength=0.2, temperature=0.1)" in {run.label for run in runs}


def test_the_id_follows_from_everything_but_the_label(tmp_path):
    def ids(**changes):
        return {run.id for run in load_suite(write(tmp_path, **changes)).runs()}

    first = ids()
    assert ids() == first
    assert ids(name="other", description="x", reference="single") == first
    methods = [{"name": "single", "label": "one"}, "sigma_nens"]
    assert ids(methods=methods) == first
    for change in (
        {"seeds": [5]},
        {"budget": {"epochs": 4}},
        {"recipe": {"learning_rate": 0.2}},
        {"backbones": ["resnet20"]},
        {"evaluation": {"batch_size": 7}},
        {"tasks": [{"name": "digits", "severities": [1, 5]}]},
    ):
        assert not ids(**change) & first
    assert ids(members=3) & first == {run for run in first if run.startswith("single")}


def test_a_copy_with_other_values_has_its_own_id_and_runs(tmp_path):
    suite = load_suite(write(tmp_path, seeds=[0]))
    first = suite.runs()[0]
    other = first.model_copy(update={"seed": 7})
    assert first.id != other.id == other.model_copy().id
    assert other.id == first.model_validate({**first.model_dump(), "seed": 7}).id
    assert first.model_copy() == first
    assert {run.seed for run in suite.model_copy(update={"seeds": (7,)}).runs()} == {7}
    assert {run.seed for run in suite.runs()} == {0}


def test_the_list_of_runs_is_the_callers_own(tmp_path):
    suite = load_suite(write(tmp_path))
    runs = suite.runs()
    taken = runs.pop()
    assert suite.runs() == [*runs, taken]


def test_a_default_said_aloud_is_the_same_run(tmp_path):
    first = {run.id for run in load_suite(write(tmp_path)).runs()}
    loud = {
        "tasks": [{"name": "digits", "severities": [1, 2, 3, 4, 5]}],
        "recipe": {"optimizer": "sgd"},
        "methods": ["single", {"name": "sigma_nens", "members": 4}],
    }
    assert {run.id for run in load_suite(write(tmp_path, **loud)).runs()} == first


def test_overrides(tmp_path):
    suite = load_suite(write(tmp_path), ("budget.epochs=7", "recipe.augment=[flip]", "seeds=[9]"))
    assert suite.budget.epochs == 7
    assert suite.recipe.augment == ("flip",)
    assert suite.seeds == (9,)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"budgets": {}}, "did you mean 'budget'"),
        ({"methods": ["sigma_nen"]}, "did you mean sigma_nens"),
        ({"methods": [{"name": "sigma_nens", "temprature": 1}]}, "did you mean 'temperature'"),
        ({"methods": [{"name": "sigma_nens", "temperature": -1}]}, "temperature"),
        ({"methods": ["single", "single"]}, "label"),
        ({"methods": ["single", {"name": "single", "label": "again"}]}, "are the same"),
        ({"methods": []}, "methods"),
        ({"tasks": ["digit"]}, "did you mean digits"),
        ({"tasks": [{"name": "digits", "severitys": [1]}]}, "severities"),
        ({"backbones": ["resnet21"]}, "resnet20"),
        ({"budget": {"epoch": 3}}, "did you mean 'epochs'"),
        ({"budget": {"epochs": -3}}, "greater than 0"),
        ({"budget": {"epochs": 1, "match": "flops"}}, "train_flops"),
        ({"recipe": {"batchsize": 3}}, "did you mean 'batch_size'"),
        ({"recipe": {"learning_rate": float("inf")}}, "finite"),
        ({"recipe": {"augment": ["flips"]}}, "flip"),
        ({"seeds": []}, "seeds"),
        ({"seeds": ["a"]}, "seeds.0"),
        ({"name": "a/b"}, "name"),
        ({"budget": None}, "budget"),
        ({"seeds": {"a": 1}}, "seeds"),
        ({"members": 0}, "members"),
        ({"methods": [{"label": "x"}]}, "name"),
        ({"methods": [3]}, "methods.0"),
        ({"methods": [{"name": "single", "label": ""}]}, "label ''"),
        ({"methods": [{"name": "single", "label": "  "}]}, "words on one line"),
        ({"methods": [{"name": "single", "label": "a\nb"}]}, "words on one line"),
        ({"methods": [{"name": "single", "label": "a\x07b"}]}, "words on one line"),
        ({"methods": [{"name": "sigma_nens", "grid": {"temperature": []}}]}, "grid.temperature"),
        (
            {
                "methods": [
                    {
                        "name": "sigma_nens",
                        "parameters": {"temperature": 1},
                        "grid": {"temperature": [2]},
                    }
                ]
            },
            "'temperature' has a value of its own",
        ),
        ({"reference": "deep"}, "reference"),
    ],
)
def test_malformed_suites_are_refused_in_one_line(tmp_path, changes, message):
    with pytest.raises(UserError) as error:
        load_suite(write(tmp_path, **changes))
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert "mine" in str(error.value) or "unknown" in str(error.value)


@pytest.mark.parametrize("override", ["x", "=1", "budget.epochs.x=1", "budget.epochs=[", "nam=1"])
def test_malformed_overrides_are_refused(tmp_path, override):
    with pytest.raises(UserError) as error:
        load_suite(write(tmp_path), (override,))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "[]", "a: [", "\tx", "name: &a *a", "\x00"])
def test_files_that_are_no_suite(tmp_path, text):
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=r"broken\.yaml"):
        load_suite(str(path))


def test_a_suite_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match="did you mean digits"):
        load_suite("digit")
    with pytest.raises(UserError, match=r"nowhere\.yaml"):
        load_suite(str(tmp_path / "nowhere.yaml"))


def test_suites_and_their_round_trip():
    suite = load_suite("digits")
    assert Suite.model_validate(suite.model_dump(mode="json")).runs() == suite.runs()
